/* testkit_edit.c - a bundle of the kit changed in one place, and what verify says of it. */
#include "omm_test.h"
#include "testkit.h"

#include <string.h>

#define BUF_MAX ((size_t)64 << 20)

void kit_print(const omm_verify_report *r) {
    omm_buf text;
    omm_buf_init(&text, BUF_MAX);
    CHECK_OK(omm_verify_report_text(&text, r));
    fprintf(stderr, "%.*s\n", (int)text.size, (const char *)text.data);
    omm_buf_fini(&text);
}

void kit_edit(const char *dir, const char *path, const char *after, const char *from,
              const char *to) {
    omm_buf text;
    omm_buf out;
    omm_buf_init(&text, BUF_MAX);
    omm_buf_init(&out, BUF_MAX);
    kit_read(&text, dir, path);
    CHECK_OK(omm_buf_append(&text, "", 1));
    char *at = (char *)text.data;
    if (after) at = strstr(at, after);
    CHECK(at != NULL);
    at = strstr(at, from);
    CHECK(at != NULL);
    CHECK_OK(omm_buf_append(&out, text.data, (size_t)(at - (char *)text.data)));
    CHECK_OK(omm_buf_append(&out, to, strlen(to)));
    CHECK_OK(omm_buf_append(&out, at + strlen(from), strlen(at + strlen(from))));
    kit_write(dir, path, omm_buf_view(&out));
    omm_buf_fini(&out);
    omm_buf_fini(&text);
}

void kit_said(const omm_verify_report *r, const char *check, const char *path, const char *says) {
    bool found = false;
    for (size_t i = 0; i < r->failure_count; i++)
        found = found || (strcmp(r->failures[i].check, check) == 0 &&
                          strncmp(r->failures[i].path, path, strlen(path)) == 0 &&
                          strstr(r->failures[i].reason, says) != NULL);
    if (!found) kit_print(r);
    if (!found) fprintf(stderr, "not said: %s: %s: %s\n", check, path, says);
    CHECK(found);
    CHECK(!r->intact);
}

#define LINES_BYTES_MAX ((size_t)4 << 20)

void kit_lines_open(kit_lines *l, const char *dir, const char *path) {
    *l = (kit_lines){0};
    omm_buf_init(&l->text, LINES_BYTES_MAX);
    omm_buf_init(&l->out, LINES_BYTES_MAX);
    omm_arena_init(&l->arena, LINES_BYTES_MAX);
    kit_read(&l->text, dir, path);
    CHECK_OK(omm_evidence_lines(&l->lines, &l->count, &l->arena, omm_buf_view(&l->text), 1000));
}

void kit_lines_put(kit_lines *l, const char *dir, const char *path) {
    kit_write(dir, path, omm_buf_view(&l->out));
    omm_arena_fini(&l->arena);
    omm_buf_fini(&l->out);
    omm_buf_fini(&l->text);
}
