/* packed.h - a copy of a model's matrices beside its file, in strips as the kernels read them (quant.h): mapped, where
 * the model itself would be read and packed at every start, and for every pass of layers that are streamed.
 *
 *   MODEL.gguf                            of several files, the first
 *   MODEL.gguf.<16 digits>.packed         the first digits of the digest of its state
 *
 *   "OMMPACK1" | u32 version | u32 files | u64 bytes of the copy | digest of the files' states | zeros to 4096
 *   | matrices, each from a multiple of 4096: embed, output unless tied, and of each layer q, k, v, o, gate, up, down
 *
 * The state of a file is (inode, bytes, modified, changed), each of 64 bits (file.h).  A copy is used only by the files
 * that it was made of, untouched since: of a model that was changed, moved or copied there is none, and none that came
 * with a download is used, because no archive can set or foresee when a file is changed here.  Who reads the state can
 * write a copy that fits it; so the owner of a copy is this user, root or who owns all of the model, and it gives no
 * right to others that the model does not give.
 * Vectors, keys and the vocabulary are read from the model; its weights were found to be finite when they were packed.
 * Two things are not seen: what a disk does to a copy (or to the model), and what is written to the model through a
 * shared map (file.h).
 *
 * Depends on: file, gguf, hash, model, quant.  Threads: read-only once open; share it freely.
 */
#ifndef OMM_PACKED_H
#define OMM_PACKED_H

#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/hash.h"
#include "omm/model.h"
#include "omm/pool.h"

typedef struct omm_packed {
    omm_map map; /* view.size is 0: not open */
    char path[OMM_PATH_MAX];
} omm_packed;

/* The copy of the model that was opened as `model`, the path of any of its files.  Release with omm_packed_close,
 * after the models that were loaded from it.
 * Errors: NOT_FOUND (none is there), FORMAT, VERSION, SIZE, MISMATCH (others have more rights than to the model); STATE
 * (somebody else's), IO, TOO_BIG (path). */
OMM_CHECKED omm_err omm_packed_open(omm_packed *out, const omm_gguf *gguf, const char *model);
/* By that error, nothing is there that could be used, and making one takes nothing from anybody. */
bool omm_packed_is_void(omm_err err);
void omm_packed_close(omm_packed *packed);

/* Make it, where there is none or a void one, and open it.  Those of earlier states of this model are removed before, as far as they can be.  Takes memory
 * for the largest matrix, and as much disk as the model; the threads of `pool` pack (NULL: this one alone).
 * Errors: those of omm_model_load, IO (no room among it), STATE (another program makes it; the model changed meanwhile;
 * it is somebody else's, or what this user makes there would be), MISMATCH (others would have more rights than to the model),
 * TOO_BIG (path); then none is there. */
OMM_CHECKED omm_err omm_packed_make(omm_packed *out, const omm_gguf *gguf, const char *model,
                                    omm_pool *pool);

/* omm_model_load_streamed of a model with a copy: its matrices lie in the map, also those of streamed layers, whose
 * pages are asked for one layer ahead and let go behind.  `gguf` may be closed afterwards; `packed` stays open until
 * omm_model_fini.  Errors: those of omm_model_load but for matrices, MISMATCH (the copy has another size). */
OMM_CHECKED omm_err omm_model_load_packed(omm_model *model, const omm_gguf *gguf,
                                          const omm_packed *packed, uint32_t resident);

#endif
