/* batch.c - a batch in micro-batches. */
#include "batch.h"

size_t batch_rows_max(const omm_recipe *recipe, const omm_dataset *data, size_t longest,
                      uint32_t micro_tokens) {
    size_t rows = micro_tokens > 0 ? micro_tokens : recipe->micro_tokens;
    if (rows > recipe->batch_tokens) rows = recipe->batch_tokens;
    if (rows > omm_dataset_tokens(data)) rows = omm_dataset_tokens(data);
    return rows < longest ? longest : rows;
}

omm_err batch_run(double *loss, const batch_options *o) {
    graph *g = o->graph;
    graph_dropout dropout = o->dropout;
    *loss = 0;
    for (size_t from = 0, n = 0; from < o->count; from += n) {
        size_t rows = 0;
        for (n = 0; from + n < o->count && rows + o->examples[from + n]->count <= g->rows_max; n++)
            rows += o->examples[from + n]->count;
        if (o->cancelled && o->cancelled(o->ud))
            return omm_raise(OMM_ERR_CANCELLED, "training stopped in step %u", o->step);
        OMM_TRY(
            graph_forward(g, o->nll, o->examples + from, n, 1.0F / (float)o->learned, &dropout));
        for (size_t i = 0; i < g->learned; i++) *loss += (double)o->nll[i];
        graph_backward(g, o->gradient, o->want_a, o->want_b);
        dropout.first_token += rows;
    }
    return OMM_OK;
}
