/* pattern_nodes.h - a regular expression as nodes, between its two parts: pattern_parse.c makes them, pattern.c reads them. */
#ifndef TEXT_PATTERN_NODES_H
#define TEXT_PATTERN_NODES_H

#include "pattern.h"

#define PATTERN_NODES_MAX 8192u
#define PATTERN_RANGES_MAX 4096u
#define PATTERN_SETS_MAX 1024u

typedef enum node_kind {
    NODE_SET,   /* one character of a set, then `next` */
    NODE_SPLIT, /* `next` or `other` */
    NODE_BEGIN, /* nothing before it */
    NODE_END,   /* nothing behind it */
    NODE_MATCH,
} node_kind;

typedef struct node {
    node_kind kind;
    uint32_t next, other;
    uint32_t set;
} node;

typedef struct range {
    uint32_t low, high;
} range;

typedef struct set {
    uint32_t first, count; /* ranges, ascending, without neighbours that touch */
} set;

typedef struct nodes {
    node list[PATTERN_NODES_MAX];
    uint32_t count;
    range ranges[PATTERN_RANGES_MAX];
    uint32_t range_count;
    set sets[PATTERN_SETS_MAX];
    uint32_t set_count;
    uint32_t start; /* where a text begins */
    uint32_t work;  /* what it took to read it */
} nodes;

/* Errors: FORMAT, UNSUPPORTED, NOMEM, with the byte of the expression; out->work is set all the same. */
OMM_CHECKED omm_err pattern_parse(nodes *out, const char *expression);

#endif
