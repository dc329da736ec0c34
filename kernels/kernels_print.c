/* kernels_print.c - the battery of each available instruction set as text, for comparison between
 * machines: one line "isa: name hash" each; of one that has another's floats, the products of quantised activations alone.  An argument
 * names the only one to run.  neon_test.sh runs it under an emulator. */
#include "attention_battery.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void print(const battery *list, omm_isa isa) {
    for (size_t i = 0; i < list->count; i++)
        printf("%s: %s %016" PRIx64 "\n", omm_isa_name(isa), list->rows[i].name,
               list->rows[i].hash);
}

int main(int argc, char **argv) {
    static battery list;
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++) {
        if (!omm_isa_available((omm_isa)isa)) continue;
        if (argc > 1 && strcmp(argv[1], omm_isa_name((omm_isa)isa)) != 0) continue;
        omm_compute c;
        if (omm_compute_init(&c, NULL, (omm_isa)isa) != OMM_OK) return 3;
        list.q8_alone = omm_isa_floats((omm_isa)isa) != (omm_isa)isa;
        battery_run(&list, &c, 0);
        print(&list, (omm_isa)isa);
        battery_run_formats(&list, &c, 0);
        print(&list, (omm_isa)isa);
        battery_run_many(&list, &c);
        print(&list, (omm_isa)isa);
        if (!list.q8_alone) {
            attention_battery_run(&list, &c, 0);
            print(&list, (omm_isa)isa);
        }
        omm_compute_fini(&c);
    }
    return 0;
}
