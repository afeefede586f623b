/* SPDX-License-Identifier: Apache-2.0
 * Which job a command is about. */
#ifndef TCK_CLI_WHICH_H
#define TCK_CLI_WHICH_H

#include "base/config.h"

struct which {
    const char *config, *config_json, *job, *node; /* as given; NULL: not */
};

/* The configuration of --config, --config-json or $TIERCKPT_CONFIG, else of the one agent that is known on this node.
 * or_defaults: else the defaults, and then *configured_out is false. */
must_check tck_status_t which_config(const struct which *which, bool or_defaults, struct config *out,
                                     bool *configured_out, struct error *err);

#endif
