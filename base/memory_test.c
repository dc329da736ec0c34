/* memory_test.c - fixture trees: machine, limits of groups of both versions, files that are missing
 * or wrong. */
#include "omm/memory.h"

#include "kernel_files.h"
#include "omm/file.h"
#include "omm_test.h"

#include <stdlib.h>
#include <string.h>

static char s_root[] = "/tmp/omm-memory-XXXXXX";
static char s_proc[64], s_group[64], s_inner[64];

static void put(const char *folder, const char *name, const char *text) {
    char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, folder, name));
    CHECK_OK(omm_file_write_fast(path, omm_bytes_str(text), 0644));
}

static void clear(void) {
    CHECK_OK(omm_dir_remove(s_proc));
    CHECK_OK(omm_dir_remove(s_group));
    CHECK_OK(omm_dir_make(s_proc));
    CHECK_OK(omm_dir_make(s_inner));
}

static void check(uint64_t total, uint64_t limit, uint64_t available) {
    omm_memory m;
    const omm_memory_source s = {.proc = s_proc, .group = s_inner, .group_root = s_group};
    omm_memory_read(&m, &s);
    CHECK_EQ(m.total, total);
    CHECK_EQ(m.limit, limit);
    CHECK_EQ(m.available, available);
}

static const char MEMINFO[] = "MemTotal:        1000 kB\nMemFree:          100 kB\n"
                              "MemAvailable:     600 kB\nBuffers:  1 kB\n";

static void test_machine(void) {
    clear();
    check(0, 0, 0);
    put(s_proc, "meminfo", MEMINFO);
    check(1024000, 0, 614400);
    put(s_proc, "meminfo", "MemTotal: 1000 kB\nMemAvailableX: 5 kB\nMemAvailable: many\n");
    check(1024000, 0, 0);
    put(s_proc, "meminfo", "");
    check(0, 0, 0);
}

static void test_groups(void) {
    clear();
    put(s_proc, "meminfo", MEMINFO);
    put(s_inner, "memory.max", "max\n");
    put(s_inner, "memory.current", "5000\n");
    check(1024000, 0, 614400);
    put(s_inner, "memory.max", "500000\n");
    check(1024000, 500000, 495000);
    put(s_inner, "memory.stat", "anon 1\ninactive_file_more 9\ninactive_file 4000\n");
    check(1024000, 500000, 499000);
    put(s_inner, "memory.stat", "inactive_file 6000\n"); /* counted at another moment */
    check(1024000, 500000, 500000);
    put(s_group, "memory.max", "400000\n"); /* of all groups inside together */
    put(s_group, "memory.current", "390000\n");
    check(1024000, 400000, 10000);
    put(s_group, "memory.current", "410000\n");
    check(1024000, 400000, 0);
    put(s_group, "memory.max", "9000000\n"); /* more than the machine has */
    check(1024000, 500000, 500000);
}

static void test_old_groups(void) {
    clear();
    put(s_inner, "memory.limit_in_bytes", "9223372036854771712\n");
    put(s_proc, "meminfo", MEMINFO);
    check(1024000, 0, 614400);
    put(s_inner, "memory.limit_in_bytes", "300000\n");
    put(s_inner, "memory.usage_in_bytes", "200000\n");
    put(s_inner, "memory.stat", "inactive_file 7\ntotal_inactive_file 50000\n");
    check(1024000, 300000, 150000);
    put(s_inner, "memory.limit_in_bytes", "-1\n");
    check(1024000, 0, 614400);
    CHECK_OK(omm_dir_remove(s_proc)); /* a limit alone */
    put(s_inner, "memory.limit_in_bytes", "300000\n");
    check(0, 300000, 150000);
}

/* NULL: the line is not of that controller. */
static void check_line(const char *line, const char *controller, const char *folder) {
    char found[OMM_PATH_MAX], root[OMM_PATH_MAX];
    const bool is = kernel_group_line(found, root, line, strlen(line), controller);
    CHECK_EQ(is, folder != NULL);
    if (is) CHECK(strcmp(found, folder) == 0);
    if (is) CHECK(strncmp(found, root, strlen(root)) == 0);
}

static void test_lines(void) {
    check_line("0::/a/b", "memory", "/sys/fs/cgroup/a/b");
    check_line("0::/", "memory", "/sys/fs/cgroup");
    check_line("4:memory:/a", "memory", "/sys/fs/cgroup/memory/a");
    check_line("4:cpu,cpuacct:/a", "cpu", "/sys/fs/cgroup/cpu,cpuacct/a");
    check_line("4:net_cls,cpu:/a", "cpu", "/sys/fs/cgroup/net_cls,cpu/a");
    check_line("3:cpuset:/a", "cpu", NULL); /* a name that begins so is another one */
    check_line("4:cpuacct,cpuset:/a", "cpu", NULL);
    check_line("1:name=systemd:/a", "cpu", NULL);
    check_line("no line", "cpu", NULL);
}

static void test_here(void) {
    omm_memory m;
    omm_memory_read(&m, NULL);
    CHECK(m.total > 0 && m.available <= m.total && m.limit <= m.total);
    const uint64_t before = omm_memory_peak();
    enum { BYTES = 32 << 20 };
    char *block = (char *)malloc(BYTES);
    CHECK(block != NULL);
    for (volatile char *p = block; p < block + BYTES; p += 1024) *p = 1; /* must not be left out */
    CHECK(omm_memory_peak() >= before + BYTES / 2);
    free(block);
}

int main(void) {
    CHECK(mkdtemp(s_root) != NULL);
    snprintf(s_proc, sizeof s_proc, "%s/proc", s_root);
    snprintf(s_group, sizeof s_group, "%s/group", s_root);
    snprintf(s_inner, sizeof s_inner, "%s/group/inner", s_root);
    test_machine();
    test_groups();
    test_old_groups();
    test_lines();
    test_here();
    CHECK_OK(omm_dir_remove(s_root));
    return 0;
}
