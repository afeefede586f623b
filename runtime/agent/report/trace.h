/* SPDX-License-Identifier: Apache-2.0
 * A file per node with what happened to each version, in Chrome's Trace Event Format (JSON array, one event per line,
 * no closing bracket), which Perfetto and chrome://tracing open. A thread writes it: storage that hangs costs lines of
 * the trace and delays nothing. */
#ifndef TCK_AGENT_TRACE_H
#define TCK_AGENT_TRACE_H

#include "base/status.h"

struct action;
struct arrival;
struct config;
struct event;
struct loop;
struct report;
struct term_context;
struct trace;

/* config->trace_dir "": there is no trace, and *out is NULL. A directory that cannot be written is reported in the log,
 * and tried again later. */
must_check tck_status_t trace_new(struct loop *loop, const struct config *config, struct trace **out,
                                  struct error *err);
void trace_free(struct trace *trace); /* may be NULL */

/* A decision was applied. */
void trace_decided(struct trace *trace, const struct term_context *tc);
/* A fetch has brought a shard. */
void trace_arrived(struct trace *trace, const struct term_context *tc, const struct arrival *what);
/* Figures of this moment, as counters: written if they have changed, and all of them where a file begins, since a
 * viewer may have that one alone. */
void trace_figures(struct trace *trace, const struct report *report);
/* Either an event, before it is handled, or an action, before it is carried out; the other one is NULL. */
void trace_note(struct trace *trace, const struct term_context *tc, const struct event *event,
                const struct action *action);

#endif
