/* testdata.h - where tests find the real files; absent files skip the test. */
#ifndef HARNESS_TESTDATA_H
#define HARNESS_TESTDATA_H

#include "omm/file.h"

#include "omm_test.h"

#include <stdio.h>
#include <stdlib.h>

enum { TEST_SKIPPED = 77 };

/* out = path of a file under the test data folder; skips the test when the folder is missing. */
static inline void testdata_path(char out[OMM_PATH_MAX], const char *name) {
    const char *dir = getenv("OMM_TESTDATA");
    if (!dir) dir = "../shared/testdata";
    CHECK_OK(omm_path_join(out, dir, name));
    char probe[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(probe, dir, "README.md"));
    if (omm_file_exists(probe)) return;
    printf("skipped: no test data in %s (set OMM_TESTDATA)\n", dir);
    exit(TEST_SKIPPED);
}

/* out = path of a file of the source tree. */
static inline void source_path(char out[OMM_PATH_MAX], const char *name) {
    const char *dir = getenv("OMM_SOURCE_DIR");
    CHECK_OK(omm_path_join(out, dir ? dir : ".", name));
}

#endif
