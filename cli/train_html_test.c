/* The page of a run that is longer than a test trains: curves of more points than a screen has columns, tables of more rows than a
 * page shows, a run that was resumed, and words that a shell would take apart. */
#include "train_html.h"

#include "omm_test.h"

#include <stdio.h>
#include <string.h>

/* 0, 1, 2, ... */
static json_t *numbers(int count) {
    json_t *list = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(list, json_real(i));
    return list;
}

static json_t *rows(int count) {
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list,
                              json_pack("{s:o,s:i,s:f,s:f}", "name", json_sprintf("row-%d", i + 1),
                                        "items", 1, "loss_before", 2.0, "loss_after", 1.0));
    return list;
}

/* Of so many steps, groups, and steps before this process; to be closed. */
static omm_buf page_of(int steps, int groups, int resumed_from, const char *word) {
    omm_buf page;
    json_t *root =
        json_pack("{s:s,s:i,s:i,s:{s:o},s:{s:o},s:[s],s:i,s:{}}", "adapter", "a.gguf", "steps",
                  steps, "resumed_from", resumed_from, "curves", "loss", numbers(steps), "held_out",
                  "skills", rows(groups), "arguments", word, "seed", 1, "recipe");
    CHECK(root);
    omm_buf_init(&page, 1 << 20);
    CHECK_OK(train_html(&page, root));
    CHECK_OK(omm_buf_append(&page, "", 1));
    json_decref(root);
    return page;
}

static bool says(const omm_buf *page, const char *words) {
    return strstr((const char *)page->data, words) != NULL;
}

/* Points of the only curve; the first and the last as they stand there. */
static int points_of(const omm_buf *page, char first[32], char last[32]) {
    const char *at = strstr((const char *)page->data, "<polyline class=\"a\" points=\"");
    int count = 0;
    CHECK(at);
    at = strchr(strchr(at, '=') + 3, '=') + 2;
    for (; *at != '"'; at += strcspn(at, " ") + 1, count++) {
        CHECK_EQ(sscanf(at, "%31[0-9.,]", last), 1);
        if (count == 0) snprintf(first, 32, "%s", last);
    }
    return count;
}

/* Up to 600 each value is a point; beyond they are averaged, as many in each but the last. */
static void averages(void) {
    static const struct {
        int steps, points;
        const char *first, *last;
    } rows[] = {{2, 2, "56.0,196.0", "632.0,10.0"},
                {600, 600, "56.0,196.0", "632.0,10.0"},
                {601, 301, "56.5,195.8", "632.0,10.0"},
                {1201, 401, "56.5,195.8", "632.0,10.0"}}; /* 0, 1, 2 at first, 1200 at last */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char first[32] = "", last[32] = "";
        omm_buf page = page_of(rows[i].steps, 1, 0, "x");
        CHECK_EQ(points_of(&page, first, last), rows[i].points);
        CHECK(strcmp(first, rows[i].first) == 0);
        CHECK(strcmp(last, rows[i].last) == 0);
        omm_buf_fini(&page);
    }
}

static void cuts_tables(void) {
    for (int count = 499; count <= 502; count++) {
        char more[64];
        omm_buf page = page_of(2, count, 0, "x");
        snprintf(more, sizeof more, "<p>and %d more in report.json</p>", count - 500);
        CHECK_EQ(says(&page, "more in report.json"), count > 500);
        CHECK_EQ(says(&page, more), count > 500);
        CHECK_EQ(says(&page, "<td>row-500</td>"), count >= 500);
        CHECK(!says(&page, "<td>row-501</td>"));
        omm_buf_fini(&page);
    }
}

static void says_what_was_before(void) {
    static const char row[] =
        "<tr><td>resumed after step (what follows is since then)</td><td>7</td></tr>";
    omm_buf resumed = page_of(9, 1, 7, "x"), whole = page_of(9, 1, 0, "x");
    CHECK(says(&resumed, row));
    CHECK(!says(&whole, "resumed after"));
    omm_buf_fini(&resumed);
    omm_buf_fini(&whole);
}

/* As a shell takes them, and then as a page does. */
static void quotes_words(void) {
    static const struct {
        const char *word, *shown;
    } words[] = {{"--out=a/b-1.gguf", "train --out=a/b-1.gguf</td>"},
                 {"", "train &#39;&#39;</td>"},
                 {"two words", "train &#39;two words&#39;</td>"},
                 {"$(x)", "train &#39;$(x)&#39;</td>"},
                 {"it's", "train &#39;it&#39;\\&#39;&#39;s&#39;</td>"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        omm_buf page = page_of(1, 1, 0, words[i].word);
        CHECK(says(&page, words[i].shown));
        omm_buf_fini(&page);
    }
}

int main(void) {
    averages();
    cuts_tables();
    says_what_was_before();
    quotes_words();
    return 0;
}
