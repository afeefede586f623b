/* SPDX-License-Identifier: Apache-2.0
 * Finds the job that a command is for. */
#ifndef TCK_CLI_WHICH_H
#define TCK_CLI_WHICH_H

#include "base/config.h"

struct which {
    const char *config, *config_json, *job, *node; /* options; NULL: not given */
};

/* The configuration of --config, --config-json or $TIERCKPT_CONFIG, otherwise of the only agent that is known on this
 * node. or_defaults: if there is none, returns the defaults and sets *configured_out to false. */
must_check tck_status_t which_config(const struct which *which, bool or_defaults, struct config *out,
                                     bool *configured_out, struct error *err);

#endif
