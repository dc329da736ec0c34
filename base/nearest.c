/* nearest.c - see omm/nearest.h. */
#include "omm/nearest.h"

#include <stdbool.h>
#include <string.h>

#define NAME_BYTES_MAX 64u

/* Edit distance with swaps of neighbours, as people mistype; '-' for '_' costs nothing. */
static unsigned distance(const char *a, const char *b) {
    unsigned d[NAME_BYTES_MAX + 1][NAME_BYTES_MAX + 1];
    size_t n = strlen(a);
    size_t m = strlen(b);
    for (size_t i = 0; i <= n; i++) d[i][0] = (unsigned)i;
    for (size_t j = 0; j <= m; j++) d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            bool same = a[i - 1] == b[j - 1] || (a[i - 1] == '-' && b[j - 1] == '_');
            unsigned best = d[i - 1][j - 1] + !same;
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[n][m];
}

omm_nearest omm_nearest_begin(const char *word) {
    const size_t size = strlen(word);
    const bool is_word = size > 0 && size <= NAME_BYTES_MAX;
    return (omm_nearest){.word = word, .best = is_word ? (unsigned)size / 3 + 1 : 0};
}

void omm_nearest_offer(omm_nearest *nearest, const char *name) {
    if (nearest->best == 0 || strlen(name) > NAME_BYTES_MAX) return;
    const unsigned d = distance(nearest->word, name);
    if (d >= nearest->best) return;
    nearest->best = d;
    nearest->name = name;
}
