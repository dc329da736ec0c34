/* train_html.c - report.html of a training run: one file, no script, nothing from outside. */
#include "train_html.h"

#include "omm/bytes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 640, /* of a curve, in its own units; the page scales it */
    HEIGHT = 220,
    LEFT = 56,
    RIGHT = 8,
    TOP = 10,
    BOTTOM = 24,
    POINTS_MAX = 600, /* more are averaged: a screen has no more columns */
    ROWS_MAX = 500    /* of a table */
};

static const char s_head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" "
    "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<title>Training report</title>\n<style>\n"
    ":root{color-scheme:light dark}body{font:16px/1.45 system-ui,sans-serif;max-width:720px;"
    "margin:0 auto;padding:12px}h1{font-size:1.4em}h2{font-size:1.1em;margin:1.6em 0 .3em}\n"
    "svg{width:100%;height:auto;display:block}svg text{font-size:12px;fill:currentColor}\n"
    ".grid{stroke:currentColor;opacity:.25}.a{fill:none;stroke:#888;stroke-width:1.2}"
    ".b{fill:none;stroke:#d1495b;stroke-width:2}.dot{fill:#d1495b}\n"
    "div.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}"
    "th,td{text-align:right;padding:3px 8px;border-bottom:1px solid #8884;white-space:nowrap}"
    "th:first-child,td:first-child{text-align:left}"
    "table.facts td{white-space:normal;overflow-wrap:anywhere}\n"
    "</style></head><body>\n<h1>Training report</h1>\n";

/* Text from a model or data file: nothing of it becomes markup. */
static omm_err put_text(omm_buf *out, const char *text) {
    for (const char *at = text; *at; at++) {
        switch (*at) {
        case '<': OMM_TRY(omm_buf_append(out, "&lt;", 4)); break;
        case '>': OMM_TRY(omm_buf_append(out, "&gt;", 4)); break;
        case '&': OMM_TRY(omm_buf_append(out, "&amp;", 5)); break;
        case '"': OMM_TRY(omm_buf_append(out, "&quot;", 6)); break;
        case '\'': OMM_TRY(omm_buf_append(out, "&#39;", 5)); break;
        default: OMM_TRY(omm_buf_append(out, at, 1)); break;
        }
    }
    return OMM_OK;
}

/* --- curves ---------------------------------------------------------------------------------- */

/* Points of a list of numbers or of {step, value} objects. */
static double y_of(const json_t *list, size_t i, const char *key) {
    const json_t *item = json_array_get(list, i);
    return json_number_value(json_is_object(item) ? json_object_get(item, key) : item);
}

static double x_of(const json_t *list, size_t i) {
    const json_t *item = json_array_get(list, i);
    if (!json_is_object(item)) return (double)i + 1;
    return json_number_value(json_object_get(item, "step"));
}

typedef struct frame {
    double x0, x1, y0, y1;
} frame;

static void widen(frame *f, const json_t *list, const char *key) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        f->x0 = fmin(f->x0, x_of(list, i));
        f->x1 = fmax(f->x1, x_of(list, i));
        f->y0 = fmin(f->y0, y_of(list, i, key));
        f->y1 = fmax(f->y1, y_of(list, i, key));
    }
}

static double screen_x(const frame *f, double x) {
    const double span = f->x1 > f->x0 ? f->x1 - f->x0 : 1;
    return LEFT + (x - f->x0) / span * (WIDTH - LEFT - RIGHT);
}

static double screen_y(const frame *f, double y) {
    const double span = f->y1 > f->y0 ? f->y1 - f->y0 : 1;
    return TOP + (f->y1 - y) / span * (HEIGHT - TOP - BOTTOM);
}

static omm_err put_line(omm_buf *out, const frame *f, const json_t *list, const char *key,
                        const char *style) {
    const size_t count = json_array_size(list), step = (count + POINTS_MAX - 1) / POINTS_MAX;
    if (!count) return OMM_OK;
    OMM_TRY(omm_buf_printf(out, "<polyline class=\"%s\" points=\"", style));
    for (size_t from = 0; from < count; from += step) {
        const size_t to = from + step < count ? from + step : count;
        double x = 0, y = 0;
        for (size_t i = from; i < to; i++) {
            x += x_of(list, i) / (double)(to - from);
            y += y_of(list, i, key) / (double)(to - from);
        }
        OMM_TRY(omm_buf_printf(out, "%.1f,%.1f ", screen_x(f, x), screen_y(f, y)));
    }
    return omm_buf_printf(out, "\"/>\n");
}

static omm_err put_grid(omm_buf *out, const frame *f) {
    for (int i = 0; i <= 2; i++) {
        const double y = f->y0 + (f->y1 - f->y0) * i / 2, at = screen_y(f, y);
        OMM_TRY(omm_buf_printf(out,
                               "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                               "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
                               LEFT, WIDTH - RIGHT, at, at, LEFT - 5, at + 4, y));
    }
    return omm_buf_printf(out,
                          "<text x=\"%d\" y=\"%d\">%.0f</text><text x=\"%d\" y=\"%d\" "
                          "text-anchor=\"end\">step %.0f</text>\n",
                          LEFT, HEIGHT - 6, f->x0, WIDTH - RIGHT, HEIGHT - 6, f->x1);
}

/* `main` in grey, and over it `judged` in red with dots; either may be NULL. */
static omm_err put_curve(omm_buf *out, const char *title, const json_t *list,
                         const json_t *judged) {
    const double far = (double)INFINITY;
    frame f = {far, -far, far, -far};
    widen(&f, list, "loss");
    widen(&f, judged, "loss");
    if (!(f.x0 <= f.x1)) return OMM_OK;
    OMM_TRY(omm_buf_printf(out,
                           "<h2>%s</h2>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" "
                           "aria-label=\"%s\">\n",
                           title, WIDTH, HEIGHT, title));
    OMM_TRY(put_grid(out, &f));
    OMM_TRY(put_line(out, &f, list, "loss", "a"));
    OMM_TRY(put_line(out, &f, judged, "loss", "b"));
    if (json_array_size(judged) <= POINTS_MAX)
        for (size_t i = 0; i < json_array_size(judged); i++)
            OMM_TRY(omm_buf_printf(out, "<circle class=\"dot\" r=\"3\" cx=\"%.1f\" cy=\"%.1f\"/>\n",
                                   screen_x(&f, x_of(judged, i)),
                                   screen_y(&f, y_of(judged, i, "loss"))));
    return omm_buf_printf(out, "</svg>\n");
}

/* --- tables ---------------------------------------------------------------------------------- */

static double number(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static omm_err put_fact(omm_buf *out, const char *name, const json_t *root, const char *key,
                        int decimals) {
    if (!json_is_number(json_object_get(root, key))) return OMM_OK;
    return omm_buf_printf(out, "<tr><td>%s</td><td>%.*f</td></tr>\n", name, decimals,
                          number(root, key));
}

static omm_err put_facts(omm_buf *out, const json_t *root) {
    const char *kind = json_object_get(root, "model") ? "model" : "adapter";
    OMM_TRY(omm_buf_printf(out, "<table class=\"facts\">\n<tr><td>%s</td><td>", kind));
    OMM_TRY(put_text(out, json_string_value(json_object_get(root, kind))));
    OMM_TRY(omm_buf_printf(out, "</td></tr>\n"));
    OMM_TRY(put_fact(out, "steps", root, "steps", 0));
    OMM_TRY(put_fact(out, "tokens", root, "tokens", 0));
    OMM_TRY(put_fact(out, "training loss, first steps", root, "loss_first", 4));
    OMM_TRY(put_fact(out, "training loss, last steps", root, "loss_last", 4));
    OMM_TRY(put_fact(out, "best held-out step", root, "best_step", 0));
    if (number(root, "resumed_from") > 0)
        OMM_TRY(put_fact(out, "resumed after step (what follows is since then)", root,
                         "resumed_from", 0));
    OMM_TRY(put_fact(out, "tokens/s", root, "tokens_per_s", 0));
    OMM_TRY(put_fact(out, "wall time, s", root, "wall_s", 1));
    OMM_TRY(put_fact(out, "peak memory, bytes", root, "peak_memory_bytes", 0));
    if (!json_object_get(root, "energy_j"))
        OMM_TRY(omm_buf_printf(out, "<tr><td>energy</td><td>this machine does not tell</td></tr>"));
    OMM_TRY(put_fact(out, "energy of the processors, J", root, "energy_j", 0));
    return omm_buf_printf(out, "</table>\n");
}

/* With as few digits as bring it back: as an f32 where it is one, as JSON's double where not. */
static omm_err put_real(omm_buf *out, double x) {
    const bool is_float = (double)(float)x == x;
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        const double back = strtod(text, NULL);
        if (is_float ? (float)back == (float)x : back == x) break;
    }
    return put_text(out, text);
}

/* A text as it is, anything else as JSON has it. */
static omm_err put_value(omm_buf *out, const json_t *value) {
    if (json_is_string(value)) return put_text(out, json_string_value(value));
    if (json_is_real(value)) return put_real(out, json_real_value(value));
    OMM_TRY(omm_json_write(out, value));
    out->size--; /* its line end */
    return OMM_OK;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* {file, digest} and, of data, how much is used of them. */
static omm_err put_file(omm_buf *out, const char *name, const json_t *file) {
    if (!file) return OMM_OK;
    OMM_TRY(omm_buf_printf(out, "<tr><td>%s</td><td>", name));
    OMM_TRY(put_text(out, text_of(file, "file")));
    if (json_object_get(file, "examples"))
        OMM_TRY(omm_buf_printf(out, ": %.0f examples, %.0f tokens", number(file, "examples"),
                               number(file, "tokens")));
    OMM_TRY(omm_buf_printf(out, "<br>BLAKE2b-256 "));
    OMM_TRY(put_text(out, text_of(file, "digest")));
    return omm_buf_printf(out, "</td></tr>\n");
}

/* As a shell takes it: what holds more than it knows to be harmless stands in quotes. */
static omm_err put_word(omm_buf *out, const char *word) {
    static const char harmless[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
    if (*word && word[strspn(word, harmless)] == 0) return put_text(out, word);
    OMM_TRY(put_text(out, "'"));
    for (; *word; word++) {
        const char one[] = {*word, 0};
        OMM_TRY(put_text(out, *word == '\'' ? "'\\''" : one));
    }
    return put_text(out, "'");
}

static omm_err put_command(omm_buf *out, const json_t *arguments) {
    OMM_TRY(omm_buf_printf(out, "<tr><td>command</td><td>meshmind train"));
    for (size_t i = 0; i < json_array_size(arguments); i++) {
        const char *word = json_string_value(json_array_get(arguments, i));
        OMM_TRY(put_text(out, " "));
        OMM_TRY(put_word(out, word ? word : ""));
    }
    return omm_buf_printf(out, "</td></tr>\n");
}

/* What was trained on what, and by which program. */
static omm_err put_origin(omm_buf *out, const json_t *root) {
    const json_t *start = json_object_get(root, "start"),
                 *program = json_object_get(root, "program");
    OMM_TRY(omm_buf_printf(out, "<h2>Origin</h2>\n<table class=\"facts\">\n"));
    OMM_TRY(put_file(out, "base model", json_object_get(root, "base")));
    for (size_t i = 0; i < json_array_size(start); i++)
        OMM_TRY(put_file(out, "start", json_array_get(start, i)));
    OMM_TRY(put_file(out, "trained on", json_object_get(root, "trained_on")));
    OMM_TRY(put_file(out, "judged on", json_object_get(root, "judged_on")));
    OMM_TRY(put_command(out, json_object_get(root, "arguments")));
    OMM_TRY(omm_buf_printf(out, "<tr><td>program</td><td>meshmind "));
    OMM_TRY(put_text(out, text_of(program, "version")));
    OMM_TRY(omm_buf_printf(out, ", "));
    OMM_TRY(put_text(out, text_of(program, "commit")));
    OMM_TRY(omm_buf_printf(out, "</td></tr>\n"));
    return omm_buf_printf(out, "</table>\n");
}

/* What the run followed from. */
static omm_err put_settings(omm_buf *out, const json_t *root) {
    const char *key = NULL;
    json_t *value = NULL;
    OMM_TRY(omm_buf_printf(out, "<h2>Recipe</h2>\n<table class=\"facts\">\n"));
    OMM_TRY(omm_buf_printf(out, "<tr><td>seed</td><td>"));
    OMM_TRY(put_value(out, json_object_get(root, "seed")));
    OMM_TRY(omm_buf_printf(out, "</td></tr>\n"));
    json_object_foreach(json_object_get(root, "recipe"), key, value) {
        OMM_TRY(omm_buf_printf(out, "<tr><td>%s</td><td>", key));
        OMM_TRY(put_value(out, value));
        OMM_TRY(omm_buf_printf(out, "</td></tr>\n"));
    }
    return omm_buf_printf(out, "</table>\n");
}

static omm_err put_row(omm_buf *out, const json_t *row) {
    OMM_TRY(omm_buf_printf(out, "<tr><td>"));
    OMM_TRY(put_text(out, json_string_value(json_object_get(row, "name"))));
    OMM_TRY(omm_buf_printf(out, "</td><td>%.0f</td><td>%.4f</td><td>%.4f</td>",
                           number(row, "items"), number(row, "loss_before"),
                           number(row, "loss_after")));
    if (number(row, "answers") > 0)
        OMM_TRY(omm_buf_printf(out, "<td>%.0f</td><td>%.0f</td><td>%.0f</td>",
                               number(row, "exact_before"), number(row, "exact_after"),
                               number(row, "answers")));
    else
        OMM_TRY(omm_buf_printf(out, "<td></td><td></td><td></td>"));
    return omm_buf_printf(out, "</tr>\n");
}

static omm_err put_groups(omm_buf *out, const char *title, const json_t *groups) {
    const size_t count = json_array_size(groups);
    if (!count) return OMM_OK;
    OMM_TRY(omm_buf_printf(out,
                           "<h2>%s</h2>\n<div class=\"wide\"><table>\n<tr><th></th><th>items</th>"
                           "<th>loss before</th><th>after</th><th>exact before</th><th>after</th>"
                           "<th>of</th></tr>\n",
                           title));
    for (size_t i = 0; i < count && i < ROWS_MAX; i++)
        OMM_TRY(put_row(out, json_array_get(groups, i)));
    OMM_TRY(omm_buf_printf(out, "</table></div>\n"));
    if (count <= ROWS_MAX) return OMM_OK;
    return omm_buf_printf(out, "<p>and %zu more in report.json</p>\n", count - ROWS_MAX);
}

/* What became of tool calls and of other replies: "exact" alone says nothing of a call that is nearly right. */
static omm_err put_replies(omm_buf *out, const json_t *evaluation) {
    static const struct {
        const char *name, *key, *of;
    } rows[] = {{"call parses", "call_parses", "calls"},
                {"right tool", "tool_right", "calls"},
                {"call exact", "call_exact", "calls"},
                {"other reply exact", "reply_exact", "replies"}};
    const json_t *before = json_object_get(evaluation, "before"),
                 *after = json_object_get(evaluation, "after");
    if (!json_object_get(after, "calls")) return OMM_OK; /* nothing was generated */
    OMM_TRY(omm_buf_printf(out, "<h2>Replies</h2>\n<div class=\"wide\"><table>\n<tr><th></th>"
                                "<th>before</th><th>after</th><th>of</th></tr>\n"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (number(after, rows[i].of) > 0)
            OMM_TRY(omm_buf_printf(out,
                                   "<tr><td>%s</td><td>%.0f</td><td>%.0f</td><td>%.0f</td></tr>\n",
                                   rows[i].name, number(before, rows[i].key),
                                   number(after, rows[i].key), number(after, rows[i].of)));
    return omm_buf_printf(out, "</table></div>\n");
}

omm_err train_html(omm_buf *out, const json_t *root) {
    const json_t *curves = json_object_get(root, "curves"),
                 *held = json_object_get(root, "held_out");
    const json_t *judged = json_object_get(root, "evaluations");
    OMM_TRY(omm_buf_append(out, s_head, sizeof s_head - 1));
    OMM_TRY(put_facts(out, root));
    OMM_TRY(put_origin(out, root));
    OMM_TRY(put_groups(out, "Held-out data", json_object_get(held, "all")));
    OMM_TRY(put_replies(out, json_object_get(root, "evaluation")));
    OMM_TRY(put_curve(out, "Loss: training grey, held-out red", json_object_get(curves, "loss"),
                      judged));
    OMM_TRY(put_curve(out, "Held-out loss", NULL, judged));
    OMM_TRY(put_curve(out, "Gradient norm", json_object_get(curves, "grad_norm"), NULL));
    OMM_TRY(put_curve(out, "Learning rate", json_object_get(curves, "learning_rate"), NULL));
    OMM_TRY(put_groups(out, "By skill", json_object_get(held, "skills")));
    OMM_TRY(put_groups(out, "By client", json_object_get(held, "clients")));
    OMM_TRY(put_settings(out, root));
    return omm_buf_printf(out, "</body></html>\n");
}
