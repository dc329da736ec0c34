/* dataset_overlap.c - which examples two data sets have in common, by their token ids. */
#include "omm/dataset.h"

#include "omm/hash.h"
#include "omm/mem.h"

#include <stdlib.h>

static omm_digest ids_of(const omm_dataset *data, size_t index) {
    const omm_example *e = omm_dataset_example(data, index);
    return omm_hash(omm_bytes_of((const uint8_t *)e->ids, e->count * sizeof *e->ids));
}

static int in_order(const void *a, const void *b) {
    return omm_digest_compare(a, b);
}

omm_err omm_dataset_overlap(size_t *count, size_t *first, const omm_dataset *data,
                            const omm_dataset *of) {
    const size_t known = omm_dataset_count(of);
    omm_digest *digests = omm_alloc(known + 1, sizeof *digests);
    if (!digests) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu digests", known);
    for (size_t i = 0; i < known; i++) digests[i] = ids_of(of, i);
    qsort(digests, known, sizeof *digests, in_order);
    *count = 0;
    for (size_t i = 0; i < omm_dataset_count(data); i++) {
        const omm_digest mine = ids_of(data, i);
        if (!bsearch(&mine, digests, known, sizeof *digests, in_order)) continue;
        if ((*count)++ == 0) *first = i;
    }
    omm_free(digests);
    return OMM_OK;
}
