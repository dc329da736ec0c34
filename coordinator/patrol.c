/* patrol.c - see patrol.h. */
#include "patrol.h"

#include "omm/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ITEM_LINE, ITEM_OFFER, ITEM_MASTER, ITEM_ADAPTER, ITEMS_OF_ROUND };
#define ITEMS_OF_ACCEPTED 3u
#define ITEMS_OF_REFUSED 2u
#define LINE_BYTES_MAX ((size_t)1 << 28)

omm_err patrol_open(patrol *p, omm_coord *coord, const char *dir, patrol_tell tell, void *ud) {
    *p = (patrol){.coord = coord, .dir = dir, .tell = tell, .ud = ud, .fd = -1};
    omm_arena_init(&p->arena, SIZE_MAX);
    omm_buf_init(&p->line, LINE_BYTES_MAX);
    p->piece = omm_alloc(PATROL_PIECE_BYTES, 1);
    return p->piece ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "a look at files");
}

static void leave(patrol *p) {
    if (p->fd >= 0) close(p->fd);
    p->fd = -1;
}

void patrol_close(patrol *p) {
    if (!p->coord) return;
    leave(p);
    omm_arena_fini(&p->arena);
    omm_buf_fini(&p->line);
    omm_free(p->piece);
    *p = (patrol){0};
}

/* ---- which file is next, and what it should be ---- */

static omm_err load_round(patrol *p, uint32_t round) {
    if (p->has_record && p->record.round == round) return OMM_OK;
    p->has_record = false;
    omm_arena_fini(&p->arena);
    omm_arena_init(&p->arena, SIZE_MAX);
    omm_buf_clear(&p->line);
    OMM_TRY(omm_coord_round_line(&p->line, &p->line_at, p->coord, round));
    OMM_TRY(omm_round_record_parse(&p->record, &p->arena, omm_buf_view(&p->line)));
    p->has_record = true;
    return OMM_OK;
}

static size_t item_count(const omm_round_record *r) {
    return ITEMS_OF_ROUND + ITEMS_OF_ACCEPTED * r->accepted_count +
           ITEMS_OF_REFUSED * r->refused_count;
}

static void describe_accepted(patrol *p, const omm_round_accepted *a, size_t part) {
    const uint32_t round = p->record.round;
    p->want = part == 0 ? a->submission : part == 1 ? a->receipt : a->payload;
    p->path = part == 0   ? omm_bundle_path_submission(round, &a->node)
              : part == 1 ? omm_bundle_path_receipt(round, &a->node)
                          : omm_bundle_path_payload(&a->payload);
}

/* False: it left no such file. */
static bool describe_refused(patrol *p, uint32_t index, size_t part) {
    const omm_round_refused *f = &p->record.refused[index];
    char path[OMM_PATH_MAX];
    p->want = part == 0 ? f->submission : f->receipt;
    if (part == 1) p->path = omm_bundle_path_refused_receipt(p->record.round, index);
    if (part == 1) return f->has_receipt;
    /* Whether it was an envelope, its name alone says. */
    p->path = omm_bundle_path_refused(p->record.round, index, f->reason, false);
    if (omm_path_join(path, p->dir, p->path.text) != OMM_OK || !omm_file_exists(path))
        p->path = omm_bundle_path_refused(p->record.round, index, f->reason, true);
    return true;
}

/* p->at: its path, its digest, where it begins.  False: there is nothing to look at. */
static bool describe(patrol *p) {
    const omm_round_record *r = &p->record;
    p->offset = 0;
    p->left = UINT64_MAX;
    size_t item = p->at.item;
    if (item == ITEM_LINE) {
        (void)snprintf(p->path.text, sizeof p->path.text, "rounds.jsonl");
        p->want = omm_hash(omm_buf_view(&p->line));
        p->offset = p->line_at;
        p->left = p->line.size;
    } else if (item < ITEMS_OF_ROUND) {
        p->want = item == ITEM_OFFER ? r->offer : item == ITEM_MASTER ? r->master : r->broadcast;
        p->path = item == ITEM_OFFER    ? omm_bundle_path_offer(r->round)
                  : item == ITEM_MASTER ? omm_bundle_path_master(r->round + 1)
                                        : omm_bundle_path_adapter(r->round + 1);
    } else if ((item -= ITEMS_OF_ROUND) < ITEMS_OF_ACCEPTED * r->accepted_count) {
        describe_accepted(p, &r->accepted[item / ITEMS_OF_ACCEPTED], item % ITEMS_OF_ACCEPTED);
    } else {
        item -= ITEMS_OF_ACCEPTED * r->accepted_count;
        return describe_refused(p, (uint32_t)(item / ITEMS_OF_REFUSED), item % ITEMS_OF_REFUSED);
    }
    return true;
}

/* p->at becomes the next place.  False: not now. */
static bool choose(patrol *p, uint64_t now_ms) {
    uint32_t count = 0;
    (void)omm_coord_history(&count, p->coord);
    p->chosen_ms = now_ms;
    if (p->damaged_count > 0 && now_ms >= p->again_ms) {
        p->again = (p->again + 1) % p->damaged_count;
        p->at = p->damaged[p->again].place;
        return load_round(p, p->at.round) == OMM_OK;
    }
    if (p->next.round >= count) { /* all were looked at */
        if (count == 0 || now_ms - p->began_ms < PATROL_PASS_MS) return false;
        p->next = (patrol_place){0};
    }
    if (p->next.round == 0 && p->next.item == 0) p->began_ms = now_ms;
    p->at = p->next;
    const bool loaded = load_round(p, p->at.round) == OMM_OK;
    const bool last = !loaded || p->at.item + 1 >= item_count(&p->record);
    p->next = (patrol_place){p->at.round + last, last ? 0 : p->at.item + 1};
    return loaded;
}

/* ---- what it is ---- */

/* Among the damaged; damaged_count: it is not. */
static size_t find_damaged(const patrol *p, const patrol_place *place) {
    size_t i = 0;
    while (i < p->damaged_count &&
           (p->damaged[i].place.round != place->round || p->damaged[i].place.item != place->item))
        i++;
    return i;
}

const char *patrol_damaged(const patrol *p) {
    return p->damaged_count > 0 ? p->damaged[p->damaged_count - 1].path.text : "";
}

/* why NULL: as it was. */
static void judge(patrol *p, const char *why) {
    const size_t found = find_damaged(p, &p->at);
    const bool known = found < p->damaged_count;
    leave(p);
    if (why) /* a large one is not looked at all the time */
        p->again_ms = p->now_ms + (p->now_ms - p->chosen_ms) + PATROL_AGAIN_MS;
    if (known == (why != NULL)) return;
    if (!why)
        p->damaged[found] = p->damaged[--p->damaged_count];
    else if (p->damaged_count < PATROL_DAMAGED_MAX)
        p->damaged[p->damaged_count++] = (patrol_damage){p->at, p->path};
    p->tell(p->ud, p->at.round, p->path.text, why);
}

static bool begin(patrol *p) {
    char path[OMM_PATH_MAX];
    if (!describe(p) || omm_path_join(path, p->dir, p->path.text) != OMM_OK) return false;
    p->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (p->fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) return false;
    if (p->fd < 0) judge(p, strerror(errno));
    omm_hasher_init(&p->hasher);
    return p->fd >= 0;
}

void patrol_step(patrol *p, uint64_t now_ms) {
    if (now_ms < p->next_ms) return;
    p->next_ms = now_ms + PATROL_STEP_MS;
    p->now_ms = now_ms;
    if (p->fd < 0 && (!choose(p, now_ms) || !begin(p))) return;
    const size_t size = p->left < PATROL_PIECE_BYTES ? (size_t)p->left : PATROL_PIECE_BYTES;
    const ssize_t got = pread(p->fd, p->piece, size, (off_t)p->offset);
    if (got < 0) {
        judge(p, strerror(errno));
        return;
    }
    omm_hasher_update(&p->hasher, omm_bytes_of(p->piece, (size_t)got));
    p->offset += (uint64_t)got;
    p->left -= (uint64_t)got;
    if (got > 0 && p->left > 0) return;
    const omm_digest is = omm_hasher_final(&p->hasher);
    judge(p, omm_digest_equal(&is, &p->want) ? NULL : "not as it was written");
}
