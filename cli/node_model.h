/* node_model.h - the base model of a node whose file names none. */
#ifndef CLI_NODE_MODEL_H
#define CLI_NODE_MODEL_H

#include "node_config.h"
#include "service_config.h"

/* *model is its path, in env's arena; NULL: stopped before it was there.  Before keys are read: a process that loaded
 * libcurl begins anew, in its place and with its arguments, so that it waits with as little memory as any other.
 * Errors: those of omm_base_fetch; CONFIG (coordinator_key). */
OMM_CHECKED omm_err node_get_model(const char **model, service_env *env, const node_file *file,
                                   const omm_guest_rules *rules, omm_bytes tls_certificate);

#endif
