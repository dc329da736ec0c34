/* aliases.h - see aliases.c. */
#ifndef TESTS_FAULT_ALIASES_H
#define TESTS_FAULT_ALIASES_H

#include <sys/types.h>

/* Every open of the program: as openat, and `mode` is 0 where nothing is made. */
int disk_open(int folder, const char *path, int flags, mode_t mode);

#endif
