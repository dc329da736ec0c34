/* room.c - a bundle has a limit of files; a run is refused at its start, or keeps fewer refusals, rather than pass it. */
#include "internal.h"

#include <math.h>

enum { OF_RUN = 100, OF_ROUND = 3, OF_SUBMISSION = 3, OF_REJECTED = 2 };

/* Nodes that a round is offered to at most, of `most` that there can be.  Extra ones take nobody's place. */
static double selected_max(const omm_coord_options *o, size_t most) {
    double drawn = o->policy.select, extra = 0;
    for (size_t i = 0; o->extra && i < o->run->node_count; i++) extra += o->extra[i];
    if (o->policy.over_select > 1) drawn *= o->policy.over_select;
    return drawn > 0 ? fmin((double)most, ceil(drawn) + extra) : (double)most;
}

/* Files of a round: what it is sure to have. */
static double of_round(const omm_coord_options *o, size_t most) {
    return OF_ROUND + OF_SUBMISSION * selected_max(o, most);
}

omm_err coord_room_check(const omm_coord_options *o, size_t most) {
    const double rounds_max = floor((OMM_BUNDLE_FILES_MAX - OF_RUN) / of_round(o, most));
    if (o->run->rounds <= rounds_max) return OMM_OK;
    return omm_raise(
        OMM_ERR_CONFIG,
        "rounds: %u of %.0f nodes are %.0f files, and a bundle with more than %u cannot be "
        "sealed; accepted: up to %.0f rounds, or fewer nodes a round (select%s)",
        o->run->rounds, selected_max(o, most), o->run->rounds * of_round(o, most),
        OMM_BUNDLE_FILES_MAX, rounds_max, o->enrolment ? ", node_max" : "");
}

/* What is left in a round goes to refusals that settle nothing: those without a name first. */
void coord_room_share(omm_coord *c) {
    const double all = floor((double)(OMM_BUNDLE_FILES_MAX - OF_RUN) / c->o.run->rounds);
    const double left = all - of_round(&c->o, c->node_max);
    const double anonymous = fmin(left, COORD_ANONYMOUS_RECORDS_MAX);
    const double of_node = floor((left - anonymous) / OF_REJECTED / c->node_max);
    c->anonymous_records_max = (uint32_t)anonymous;
    c->node_records_max = (uint32_t)fmin(of_node, COORD_NODE_RECORDS_MAX);
}
