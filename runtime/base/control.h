/* SPDX-License-Identifier: Apache-2.0
 * One request to a node's agent, as JSON, over its socket. */
#ifndef TCK_BASE_CONTROL_H
#define TCK_BASE_CONTROL_H

#include "base/config.h"

#define CONTROL_MS 120000 /* verify reads all memory, plan asks all nodes */

/* TCK_ERR_UNREACHABLE if there is no agent, TCK_ERR_TIMEDOUT if it gives no answer within answer_ms. op is a request
 * without further members, or request is a whole one (taken over). The caller frees *out, an object with "ok". */
must_check tck_status_t control_ask(const struct config *config, const char *op, json_t *request, int answer_ms,
                                    json_t **out, struct error *err);

#endif
