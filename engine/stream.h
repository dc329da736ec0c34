/* stream.h - layers that the model does not hold: each is read from the file and packed when its turn
 * comes, into memory for one layer.  Of a packed copy (omm/packed.h) it is used where it lies in the map.
 *
 *   resident layers ...  | streamed: r | r + 1 | ... | last |   back to r in the next pass
 *                                       ask the system for this one's pages, then pack r
 *
 * The file's pages of a matrix are let go as soon as it is packed, those of a copy when the next layer has
 * its turn.  Packing is that of loading, so the
 * results are those of a model in memory, to the bit; so are its errors.
 *
 * Inside engine only.  Depends on: model, quant.  Threads: those of the graph that owns it.
 */
#ifndef ENGINE_STREAM_H
#define ENGINE_STREAM_H

#include "omm/model.h"

typedef struct model_stream {
    const omm_model *model;
    omm_layer layer; /* the streamed one at hand: vectors are the model's, matrices lie in rooms */
    uint32_t index;  /* its number; UINT32_MAX: none */
    uint8_t *rooms[OMM_LORA_TARGET_COUNT];
    size_t room_bytes[OMM_LORA_TARGET_COUNT];
} model_stream;

/* Memory for a layer, if the model is streamed from its file; it is borrowed.  Errors: NOMEM; then nothing is held. */
OMM_CHECKED omm_err model_stream_init(model_stream *s, const omm_model *model);
void model_stream_fini(model_stream *s);

/* Layer `index`, until the next call: the model's own, or read by the threads of `pool`.
 * Errors: NUMERIC (a weight that is not finite; names the tensor), STATE (its file was written to), IO. */
OMM_CHECKED omm_err model_stream_layer(const omm_layer **out, model_stream *s, omm_pool *pool,
                                       uint32_t index);

/* Bytes of memory that init takes if layers from `resident` on are streamed, and of the file's pages
 * that packing holds at most.  The model may be an outline. */
uint64_t model_stream_room_bytes(const omm_model *model, uint32_t resident);
uint64_t model_stream_page_bytes(const omm_model *model, uint32_t resident);

#endif
