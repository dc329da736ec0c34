/* vectors.c - see vectors.h. */
#include "vectors.h"

const char *text_of(const json_t *object, const char *key) {
    const char *text = NULL;
    CHECK_OK(omm_json_get_str(&text, object, key));
    return text;
}

int64_t number_of(const json_t *object, const char *key) {
    int64_t value = 0;
    CHECK_OK(omm_json_get_int(&value, object, key, INT64_MIN, INT64_MAX));
    return value;
}

json_t *list_of(const json_t *object, const char *key, size_t least) {
    json_t *list = NULL;
    CHECK_OK(omm_json_get_array(&list, object, key));
    CHECK(json_array_size(list) >= least);
    return list;
}

json_t *object_of(const json_t *object, const char *key) {
    json_t *member = NULL;
    CHECK_OK(omm_json_get_object(&member, object, key));
    return member;
}

omm_buf bytes_of(const json_t *object, const char *key) {
    const char *hex = text_of(object, key);
    omm_buf out;
    uint8_t *to = NULL;
    omm_buf_init(&out, FILE_MAX);
    if (hex[0] == 0) return out;
    CHECK_OK(omm_buf_extend(&out, &to, strlen(hex) / 2));
    CHECK_OK(omm_unhex(to, out.size, hex));
    return out;
}

omm_digest digest_of(const json_t *object, const char *key) {
    omm_digest d;
    CHECK_OK(omm_json_get_digest(d.b, object, key));
    return d;
}

void check_reason(const json_t *vector, omm_err err) {
    const char *want = text_of(vector, "reason"), *got = omm_err_name(err);
    if (strcmp(want, got) != 0)
        fprintf(stderr, "%s: %s, expected %s\n", text_of(vector, "what"), got, want);
    CHECK(strcmp(want, got) == 0);
}

void each(const json_t *vectors, const char *key, size_t least, void (*check)(const json_t *)) {
    const json_t *list = list_of(vectors, key, least);
    for (size_t i = 0; i < json_array_size(list); i++) check(json_array_get(list, i));
    printf("%s: %zu\n", key, json_array_size(list));
}
