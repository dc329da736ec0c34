/* node_model.h - the base model of a node whose file names none. */
#ifndef CLI_NODE_MODEL_H
#define CLI_NODE_MODEL_H

#include "node_config.h"
#include "service_config.h"

/* Who asks for it: all borrowed. */
typedef struct node_model_asker {
    const omm_key *key;
    const omm_seed *token; /* NULL: none */
    const omm_guest_rules *rules;
    omm_bytes tls_certificate;
} node_model_asker;

/* *model is its path, in env's arena; NULL: stopped before it was there.  A process that loaded libcurl begins anew, in its
 * place and with its arguments, so that it waits with as little memory as any other.
 * Errors: those of omm_base_fetch; CONFIG (coordinator_key). */
OMM_CHECKED omm_err node_get_model(const char **model, service_env *env, const node_file *file,
                                   const node_model_asker *asker);

#endif
