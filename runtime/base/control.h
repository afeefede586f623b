/* SPDX-License-Identifier: Apache-2.0
 * One request to a node's agent, as JSON, over its socket. */
#ifndef TCK_BASE_CONTROL_H
#define TCK_BASE_CONTROL_H

#include "base/config.h"

/* TCK_ERR_UNREACHABLE if no agent answers. op is a request without further members, or request is a whole one (taken
 * over). The caller frees *out, an object with "ok". */
must_check tck_status_t control_ask(const struct config *config, const char *op, json_t *request, json_t **out,
                                    struct error *err);

#endif
