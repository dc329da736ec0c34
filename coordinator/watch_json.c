/* watch_json.c - see watch_json.h. */
#include "watch_json.h"

#include <math.h>

json_t *watch_json_words(const char *text) {
    char clean[WATCH_TROUBLE_SIZE];
    size_t n = 0;
    for (; text[n] && n + 1 < sizeof clean; n++) {
        clean[n] = text[n];
        if (clean[n] < 0x20 || clean[n] == 0x7f || (unsigned char)clean[n] > 0x7f) clean[n] = '?';
    }
    clean[n] = '\0';
    return json_string(clean);
}

json_t *watch_json_time(uint64_t wall_ms) {
    char text[25];
    if (!wall_ms) return json_null();
    omm_time_iso(text, wall_ms);
    return json_string(text);
}

json_t *watch_json_real(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *watch_json_count(uint64_t value) {
    return json_integer((json_int_t)(value > INT64_MAX ? INT64_MAX : value));
}

omm_err watch_json_sick(json_t *root, const watch_seen *s) {
    omm_buf reasons;
    omm_buf_init(&reasons, 4096);
    omm_err err = watch_reasons_text(&reasons, s);
    json_t *list = json_array();
    for (size_t from = 0, at = 0; err == OMM_OK && at < reasons.size; at++) {
        if (reasons.data[at] != '\n') continue;
        reasons.data[at] = '\0';
        json_array_append_new(list, watch_json_words((const char *)reasons.data + from));
        from = at + 1;
    }
    omm_buf_fini(&reasons);
    if (err == OMM_OK) return omm_json_set(root, "sick", list);
    json_decref(list);
    return err;
}
