/* nearest_test.c - what was meant by a word: one letter wrong, missing, too many, swapped; a third of them at most; the first
 * of several; nothing for what is like none of them, empty or long. */
#include "omm/nearest.h"
#include "omm_test.h"

#include <string.h>

static const char *meant(const char *word) {
    static const char *const names[] = {"rank", "rounds", "max_memory_mb", "round", "r"};
    omm_nearest n = omm_nearest_begin(word);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) omm_nearest_offer(&n, names[i]);
    return n.name ? n.name : "";
}

int main(void) {
    char large[80];
    CHECK(strcmp(meant("rnak"), "rank") == 0);
    CHECK(strcmp(meant("rnk"), "rank") == 0);
    CHECK(strcmp(meant("rannk"), "rank") == 0);
    CHECK(strcmp(meant("ranj"), "rank") == 0);
    CHECK(strcmp(meant("rank"), "rank") == 0);
    CHECK(strcmp(meant("max-memory-mb"), "max_memory_mb") == 0);
    CHECK(strcmp(meant("mxa-memroy-mb"), "max_memory_mb") == 0);
    CHECK(strcmp(meant("roundz"), "rounds") == 0); /* "round" is as near, and behind it */
    CHECK(strcmp(meant("ruond"), "round") == 0);
    CHECK(strcmp(meant("rnaj"), "") == 0); /* two of four letters */
    CHECK(strcmp(meant("x"), "") == 0);
    CHECK(strcmp(meant(""), "") == 0);
    memset(large, 'r', sizeof large);
    large[64] = 0;
    CHECK(strcmp(meant(large), "") == 0);
    large[64] = 'r';
    large[65] = 0;
    CHECK(strcmp(meant(large), "") == 0);
    omm_nearest n = omm_nearest_begin("rank");
    omm_nearest_offer(&n, large); /* longer than what is compared */
    CHECK(n.name == NULL);
    return 0;
}
