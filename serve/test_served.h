/* test_served.h - the shipped base model and a server of it, for tests: one request at a time over a socket of its own.
 */
#ifndef SERVE_TEST_SERVED_H
#define SERVE_TEST_SERVED_H

#include "omm/serve.h"

typedef struct served {
    omm_model model;
    omm_tokenizer *tokenizer;
    omm_adapter *adapters[2];
    omm_pool *pool;
    omm_compute compute;
    omm_serve_options options; /* of a server of it: "base", with adapters "one" and "two" */
} served;

void served_open(served *s);
void served_close(served *s);
/* The base model's tokenizer with another template.  Caller closes. */
omm_tokenizer *served_other_tokenizer(const char *jinja);
/* Its marks are text; an answer ends at [INST]. */
#define SERVED_MARKED "{{ bos_token ~ '[INST] ' ~ turn.content ~ ' [/INST]' }}"

/* An answer, whole: its end is the connection's. */
typedef struct answer {
    unsigned status;
    char *head, *body; /* (body_size) what was cut in chunks is whole; NUL-terminated */
    size_t body_size;
} answer;

int served_connect(unsigned port);
void served_send(int fd, const char *bytes, size_t size);
/* POST of JSON, to be answered on a connection that is closed then. */
void served_post(int fd, const char *path, const char *body);
void served_read(answer *out, int fd); /* and closes */
void answer_fini(answer *a);
/* All of that. */
answer served_ask(unsigned port, const char *path, const char *body);
/* What /metrics says of meshmind_serve_NAME, which has no labels. */
double served_metric(unsigned port, const char *name);
/* A member of the answer's JSON, by a path of names and indices ("choices", 0, "text" is "choices.0.text"), as text:
 * a string's, or the value's own.  Caller frees. */
char *served_member(const char *json, const char *path);

#endif
