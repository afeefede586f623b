/* SPDX-License-Identifier: Apache-2.0
 * Serves the metrics: GET /metrics, in a thread of its own, so that the agent's loop never waits for a scraper and a
 * scraper never for the loop. Connections are few, carry one request each, and end after some seconds, whatever comes.
 */
#ifndef TCK_AGENT_METRICS_HTTP_H
#define TCK_AGENT_METRICS_HTTP_H

#include "base/listen_address.h"

#include <stddef.h>

struct metrics_http;

must_check tck_status_t metrics_http_start(const struct socket_address *address, struct metrics_http **out,
                                           struct error *err);
/* Waits for the thread, not for scrapers. */
void metrics_http_stop(struct metrics_http *http);
/* The address with the port that it has. */
const char *metrics_http_at(const struct metrics_http *http);
/* What is served from now on; takes the text over, which free() must free. Until the first call, scrapers get an error.
 * Out of memory: the text before stays, and its time shows that it is old. */
void metrics_http_show(struct metrics_http *http, char *text, size_t len);

#endif
