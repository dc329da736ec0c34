/* Energy from a tree like the kernel's: several packages, what must not count, wrap-around, a counter
 * that cannot be read, a machine that tells nothing. */
#include "energy.h"

#include "omm_test.h"

#include <string.h>

static char s_root[64];

static void put(const char *zone, const char *file, const char *text) {
    char folder[128], path[192];
    snprintf(folder, sizeof folder, "%s/%s", s_root, zone);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    CHECK_OK(omm_dir_make(folder));
    CHECK_OK(omm_file_write_fast(path, omm_bytes_of(text, strlen(text)), 0644));
}

static void zone(const char *zone_name, const char *name, const char *energy_uj) {
    put(zone_name, "name", name);
    put(zone_name, "max_energy_range_uj", "262143328850\n");
    put(zone_name, "energy_uj", energy_uj);
}

int main(void) {
    snprintf(s_root, sizeof s_root, "/tmp/omm-energy-XXXXXX");
    CHECK(mkdtemp(s_root));
    energy e;
    energy_begin(&e, s_root);
    CHECK(!e.known); /* an empty folder, as in a virtual machine */
    zone("intel-rapl:0", "package-0\n", "1000000\n");
    zone("intel-rapl:1", "package-1\n", "262143328849\n");
    zone("intel-rapl:2", "psys\n", "5\n");
    zone("intel-rapl:0:0", "core\n", "7\n");
    zone("intel-rapl-mmio:0", "package-0\n", "9\n");
    energy_begin(&e, s_root);
    CHECK(e.known && e.count == 2 && e.joules == 0);
    zone("intel-rapl:0", "package-0\n", "3500000\n");
    zone("intel-rapl:2", "psys\n", "5000000\n");
    zone("intel-rapl:0:0", "core\n", "7000000\n");
    energy_sample(&e);
    CHECK(e.known && e.joules == 2.5);
    zone("intel-rapl:1", "package-1\n", "249999\n"); /* 1 to the top, then 249999 */
    energy_sample(&e);
    CHECK(e.known && e.joules == 2.75);
    energy_sample(&e);
    CHECK(e.joules == 2.75);
    zone("intel-rapl:1", "package-1\n", "12x\n");
    energy_sample(&e);
    CHECK(!e.known);
    zone("intel-rapl:1", "package-1\n", "300000\n");
    energy_begin(&e, s_root);
    CHECK(e.known);
    zone("intel-rapl:0", "package-0\n", "262143328851\n"); /* over its own range */
    energy_sample(&e);
    CHECK(!e.known);
    energy_begin(
        &e,
        s_root); /* from the beginning: what it has used since then would be beyond all measure */
    CHECK(!e.known);
    zone("intel-rapl:0", "package-0\n", "1\n");
    char path[192];
    snprintf(path, sizeof path, "%s/intel-rapl:1/energy_uj", s_root);
    CHECK_OK(omm_file_remove(path)); /* as where only root may read it */
    energy_begin(&e, s_root);
    CHECK(!e.known && e.count == 2);
    CHECK_OK(omm_dir_remove(s_root));
    energy_begin(&e, s_root);
    CHECK(!e.known);
    return 0;
}
