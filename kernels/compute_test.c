/* Goal: what a context keeps between jobs is kept, and let go when it rests; a replay's instruction set is lower, and has float
 * products of its own.
 * Method: the heap's count of what lives, and the addresses of blocks; every instruction set that is here.
 */
#include "omm/compute.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

static void check_lower(void) {
    omm_isa lower = OMM_ISA_COUNT, parsed = OMM_ISA_COUNT;
    for (unsigned i = 0; i < OMM_ISA_COUNT; i++) {
        const omm_isa isa = (omm_isa)i;
        if (!omm_isa_available(isa)) { /* another processor's, or a newer one's */
            CHECK_ERR(omm_isa_parse(&parsed, omm_isa_name(isa)), OMM_ERR_CONFIG);
            continue;
        }
        CHECK_OK(omm_isa_parse(&parsed, omm_isa_name(isa)));
        CHECK(parsed == isa);
        CHECK(omm_isa_lower(&lower, isa) == (isa != OMM_ISA_SCALAR));
        if (isa == OMM_ISA_SCALAR) {
            CHECK_EQ(omm_isa_floats(isa), isa);
            continue;
        }
        CHECK(lower < isa && omm_isa_available(lower));
        const bool bytes = isa == OMM_ISA_AVX2_VNNI || isa == OMM_ISA_NEON_DOTPROD;
        CHECK_EQ(omm_isa_floats(isa), bytes ? isa - 1 : isa);
        if (bytes) CHECK(lower == OMM_ISA_SCALAR);
        if (isa == OMM_ISA_AVX512) CHECK(lower == OMM_ISA_AVX2 || lower == OMM_ISA_AVX2_VNNI);
    }
}

/* Without a word of the user's: no better one is there. */
static void check_best(void) {
    omm_isa best = OMM_ISA_COUNT, named = OMM_ISA_COUNT;
    CHECK_OK(omm_isa_choose(&best, NULL));
    CHECK(omm_isa_available(best) && !omm_isa_available(OMM_ISA_COUNT));
    for (unsigned i = best + 1u; i < OMM_ISA_COUNT; i++) CHECK(!omm_isa_available((omm_isa)i));
    CHECK_OK(omm_isa_choose(&named, ""));
    CHECK_EQ(named, best);
    CHECK_OK(omm_isa_choose(&named, "scalar"));
    CHECK_EQ(named, OMM_ISA_SCALAR);
    CHECK_ERR(omm_isa_choose(&named, "best"), OMM_ERR_CONFIG);
}

/* One block is kept; others, and those that are too large, go back when they are given. */
static void check_blocks(const omm_compute *c) {
    const size_t live = omm_mem_live();
    void *kept = omm_compute_take(c, 100, 10), *other = omm_compute_take(c, 100, 10);
    CHECK(kept && other && kept != other);
    omm_compute_give(c, NULL);
    omm_compute_give(c, other);
    CHECK_EQ(omm_mem_live(), live + 1);
    omm_compute_give(c, kept);
    void *huge = omm_compute_take(c, OMM_COMPUTE_SPARE_BYTES_MAX + 1, 1);
    CHECK(huge && huge != kept);
    omm_compute_give(c, huge);
    CHECK_EQ(omm_mem_live(), live + 1);
    CHECK(omm_compute_take(c, SIZE_MAX / 2, 3) == NULL);
    CHECK(omm_compute_take(c, SIZE_MAX / 2 + 1, 2) == NULL); /* not of 0 bytes */
    CHECK(omm_compute_take(c, 1000, 1) == kept);             /* as large as it was */
    omm_compute_give(c, kept);
    void *larger = omm_compute_take(c, 1001, 1);
    CHECK(larger != NULL);
    omm_compute_give(c, larger);
    CHECK_EQ(omm_mem_live(), live + 1);
    omm_compute_rest(c);
    CHECK_EQ(omm_mem_live(), live);
}

int main(void) {
    omm_compute c;
    check_lower();
    check_best();
    CHECK_OK(omm_compute_init(&c, NULL, OMM_ISA_SCALAR));
    check_blocks(&c);
    const size_t live = omm_mem_live();
    void *block = omm_compute_take(&c, 1000, 100);
    CHECK(block != NULL);
    omm_compute_rest(&c); /* in use: stays */
    CHECK_EQ(omm_mem_live(), live + 1);
    memset(block, 1, 100000);
    omm_compute_give(&c, block);
    CHECK(omm_compute_take(&c, 500, 100) == block);
    omm_compute_give(&c, block);
    CHECK_EQ(omm_mem_live(), live + 1); /* kept */
    memset(c.work, 1, c.work_floats * sizeof *c.work);
    omm_compute_rest(&c);
    omm_compute_rest(&c);
    CHECK_EQ(omm_mem_live(), live);
    size_t left =
        0; /* of the scratch space, which begins and ends in pages that others may use, too */
    for (size_t i = 0; i < c.work_floats; i++) left += c.work[i] != 0;
    CHECK(left * sizeof *c.work <= 2u << 16);
    memset(c.work, 1, c.work_floats * sizeof *c.work); /* and is there */
    block = omm_compute_take(&c, 1, 1);
    CHECK(block != NULL);
    omm_compute_give(&c, block);
    omm_compute_fini(&c);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
