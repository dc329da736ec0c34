/* base_fetch.h - a node without the base model gets it: from mirrors, or from the coordinator.
 *
 *   Request{base} --> signed manifest --> Request{enrol}: is it let in?
 *           --> pieces, from the first source that gives right ones --> FOLDER/DIGEST.gguf
 *                  ^         |
 *                  +--wrong--+  the source is dropped and counted: the last resort
 *
 * Sources are the owner's mirrors, then those of the manifest, then the coordinator.  Each piece is checked by
 * its digest before it counts; the file has its name when all of it is right and on the disk.  Killed and called
 * again it goes on after the last right piece, which is found by reading what is there.  Where the disk fills up
 * meanwhile, it says so and goes on when there is room.
 *
 * A mirror is a plain HTTP server with the file, with or without Range.  Only http:// and https://, three
 * redirects at most, no proxy, no addresses of private networks unless the owner allows them.
 *
 * Depends on: base, proto, guest.h; libcurl, loaded when a mirror is used.
 * Threads: runs on the calling thread; `stop` may be set by another or by a signal handler.
 */
#ifndef OMM_BASE_FETCH_H
#define OMM_BASE_FETCH_H

#include "omm/clock.h"
#include "omm/file.h"
#include "omm/guest.h"
#include "omm/log.h"
#include "omm/sign.h"

#include <stdatomic.h>

#define OMM_BASE_FOLDER "base" /* in state_dir */

/* All borrowed. */
typedef struct omm_base_fetch_options {
    const char *name;      /* of the node, for logs and status.json */
    const char *state_dir; /* the model is kept in OMM_BASE_FOLDER of it */
    const char *url;       /* of the coordinator */
    omm_bytes tls_certificate;
    omm_public_key coordinator; /* pinned */
    /* Nothing is fetched before the coordinator lets this key in, by the invitation if there is one, or lets it work for
     * that later; key NULL: it is not asked. */
    const omm_key *key;
    const omm_seed *token;
    const char *run_id; /* NULL: any run */
    uint32_t work_bits_max;
    const char *const *mirrors; /* (mirror_count) the owner's; omm_mirror_check accepts them */
    size_t mirror_count;
    bool private_mirrors; /* also at addresses of private networks */
    uint64_t bytes_max;   /* of the model; a larger one is refused */
    uint64_t answer_ms;   /* without an answer for so long, a request is sent again */
    uint32_t stall_s; /* a mirror that gives less than a kilobyte a second for so long is left */
    const omm_guest_rules *guest; /* NULL: always */
    const char *guest_root;
    omm_clock clock;
    const omm_log *log;
    const atomic_bool *stop;
} omm_base_fetch_options;

typedef struct omm_base_fetch_result {
    char path[OMM_PATH_MAX]; /* of the model; "": stopped before it was there */
    uint64_t size;
    uint64_t from_coordinator, from_mirrors; /* bytes that came now */
    bool used_mirrors;                       /* libcurl is loaded now, which takes some megabytes */
    uint32_t mirrors_dropped;                /* for wrong bytes, or refusals; each once */
} omm_base_fetch_result;

/* Returns when the model is there, or `stop` is set.  A model that is there already is used where the coordinator
 * names the same, or does not answer at once.
 * Errors: REFUSED_SIZE (over bytes_max, or the disk is too small), STATE (another node works in the folder), CONFIG
 * (a mirror's address), IO (before the first piece and after the last), NOMEM. */
OMM_CHECKED omm_err omm_base_fetch(omm_base_fetch_result *out,
                                   const omm_base_fetch_options *options);

#endif
