/* grammar_gather.h - members of an object, gathered from all schemas that say something of it (grammar_lenient.c). */
#ifndef TEXT_GRAMMAR_GATHER_H
#define TEXT_GRAMMAR_GATHER_H

#include "grammar_internal.h"

#define GATHER_NESTED_MAX 32u /* of schemas whose members are gathered; LOOKS_MAX bounds the work */

/* How a schema stands to the one whose members are gathered. */
typedef enum standing {
    HOLDS,
    MAY_HOLD, /* an alternative */
    IS_ASKED, /* whether it holds: a member may be as it says, or not */
} standing;

typedef struct gatherer {
    json_t *root;
    looks *looks;
    const json_t *inside[GATHER_NESTED_MAX]; /* on the way here: none is gathered inside itself */
    const json_t *branches;                  /* become alternatives and are not gathered */
    json_t *held;                            /* schemas by name, of what holds; the first of each */
    json_t *ways;                            /* lists of schemas by name, of what may hold */
    json_t *plain;                           /* the same ones, to be compared */
    json_t *met;                             /* those that were looked at, equal ones too */
    json_t *named;                           /* names of which nothing is said */
    json_t *required;
    json_t *types;  /* that hold; the first that are written */
    bool has_names; /* whatever alternative holds, it has `properties` */
    bool branch_has_names;
    bool is_open; /* others than those that are named may stand */
} gatherer;

gatherer gatherer_init(json_t *root, looks *l);
void gatherer_fini(gatherer *w);

/* One look more; false: there were as many as there may be, and w->is_open, as what is not looked at may name others. */
bool gather_may_look(gatherer *w);
bool gather_may_go_on(gatherer *w); /* to one more of a list: the same, and nothing is counted */
/* Where $ref leads; NULL: nowhere, or it is not there. */
json_t *gather_follow(gatherer *w, const json_t *schema);
/* Others than those that are named may stand. */
bool gather_has_others(const json_t *schema);

/* depth: of schemas around it in w->inside. */
void gather(gatherer *w, json_t *schema, standing how, unsigned depth);
/* What stands beside its own properties. */
void gather_beside(gatherer *w, const json_t *schema, standing how, unsigned depth);
/* A list of which one holds: names are there for certain where each has some. */
void gather_either(gatherer *w, const json_t *list, standing how, unsigned depth);
/* To one that has none. */
void gather_copy_ways(gatherer *out, const gatherer *w);
/* A new reference to schemas by name: what holds, else what may, else any value.  others: how members without a name may be;
 * NULL: there are none.  What may hold may as well not, and the member is one of these then. */
json_t *gather_join(gatherer *w, json_t *others);

#endif
