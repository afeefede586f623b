/* SPDX-License-Identifier: Apache-2.0
 * Ends an agent: soon after its job has ended cleanly, when no trainer has connected for linger_s, or when the system
 * asks it to end. */
#include "agent/lifecycle/idle_exit.h"

#include "agent/drain/drain_share.h"
#include "agent/driver/term.h"
#include "agent/ipc/ipc_server.h"
#include "agent/lifecycle/fdstore.h"
#include "agent/replication/peer_rpc.h"
#include "agent/storage/metadata_writer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "core/agent_end.h"

#include <inttypes.h>
#include <stdlib.h>

struct idle_exit {
    struct idle_exit_setup needs;
    uint64_t idle_since_ms; /* since when no trainer has been connected; 0: one is */
    bool drain_logged;      /* since then */
    bool job_done;
    bool stop_forced;     /* exit even if trainers are running */
    uint64_t asked_ms;    /* since when the system wants it to end; 0: it does not */
    struct version asked; /* the newest commit at that time, or when the last trainer ended */
};

static bool draining(const struct term_context *tc)
{
    return tc != NULL && !tc->closed && !version_none(node_decision(tc->node)->drain);
}

static bool only_memory_has_newest(const struct term_context *tc)
{
    if (tc == NULL || tc->closed) {
        return false;
    }
    const struct decision *d = node_decision(tc->node);
    return version_cmp(d->watermark, d->published) > 0;
}

/* Without a term, nobody publishes. */
static bool owes(const struct idle_exit *x)
{
    const struct term_context *tc = *x->needs.term;
    return tc != NULL && !tc->closed && version_cmp(x->asked, node_decision(tc->node)->published) > 0;
}

static bool is_undrained(const struct term_context *tc)
{
    return only_memory_has_newest(tc) && !node_decision(tc->node)->drain_wanted && !draining(tc);
}

/* The agents of all nodes ask, each until the decision says that a drain is wanted: a request may be lost. */
static void drain_at_end(struct idle_exit *x, const struct agent_use *use)
{
    if (!agent_drains_at_end(use, clock_ms())) {
        return;
    }
    if (!x->drain_logged && x->asked_ms == 0) {
        log_info("no trainer has come back for half of linger_s: the newest version in memory is drained to storage");
    }
    x->drain_logged = true;
    rpc_ask_drain(*x->needs.term);
}

/* Nobody has asked for this end, so it says what ends with it. */
static void warn_of_loss(const struct idle_exit *x)
{
    const struct term_context *tc = *x->needs.term;
    if (only_memory_has_newest(tc)) {
        const struct decision *d = node_decision(tc->node);
        log_warn("version %" PRIu64 ".%" PRIu64 " is only in memory, and this node's part of it is lost now: it could "
                 "not be drained to storage, for the reasons logged above. A longer linger_s keeps memory for longer",
                 d->watermark.term, d->watermark.step);
        drain_warn_unpublished(tc, d->watermark);
    }
}

static void warn_of_short_grace(const struct idle_exit *x)
{
    if (owes(x)) {
        log_warn(
            "version %" PRIu64 ".%" PRIu64 " is only in memory, and this node's part of it is lost now: it could "
            "not be drained to storage within %u s (grace_s). If no reason is logged above, storage is too slow for "
            "that: set grace_s, and the time that the system grants, to more",
            x->asked.term, x->asked.step, x->needs.config->grace_s);
        drain_warn_unpublished(*x->needs.term, x->asked);
    }
}

static void leave(const struct idle_exit *x, const char *why)
{
    log_info("exiting: %s", why);
    fdstore_stopping(x->needs.fdstore);
    loop_stop(x->needs.loop);
}

void idle_exit_tick(struct idle_exit *x)
{
    bool trainers = clients_trainers(*x->needs.clients) > 0;
    if (x->asked_ms != 0 && !trainers && only_memory_has_newest(*x->needs.term)) {
        x->asked = node_decision((*x->needs.term)->node)->watermark;
    }
    /* Notes in the term file count as writes, too: without the note that the job has ended well, the next start would
     * count it as a failed restore of its version. */
    struct agent_use use = {.stop_forced = x->stop_forced,
                            .trainers = trainers,
                            .idle_since_ms = x->idle_since_ms,
                            .job_done = x->job_done,
                            .writes = draining(*x->needs.term) || metadata_is_pending(x->needs.metadata),
                            .copies = x->needs.archives(x->needs.ctx),
                            .undrained = is_undrained(*x->needs.term),
                            .linger_ms = (uint64_t)x->needs.config->linger_s * 1000,
                            .asked_ms = x->asked_ms,
                            .owes = owes(x),
                            .grace_ms = (uint64_t)x->needs.config->grace_s * 1000};
    drain_at_end(x, &use);
    switch (agent_leave_judge(&use, clock_ms())) {
    case AGENT_IN_USE:
        x->idle_since_ms = 0;
        x->drain_logged = false;
        break;
    case AGENT_IDLE:
        x->idle_since_ms = x->idle_since_ms ? x->idle_since_ms : clock_ms();
        break;
    case AGENT_LEAVES_STOPPED:
        leave(x, "stopped with --force");
        break;
    case AGENT_LEAVES_ASKED:
        warn_of_short_grace(x);
        leave(x, "the system has asked this agent to end (SIGTERM)");
        break;
    case AGENT_LEAVES_DONE:
        leave(x, "the job is done");
        break;
    case AGENT_LEAVES_ALONE:
        warn_of_loss(x);
        leave(x, "no trainer has connected for linger_s");
        break;
    }
}

void idle_exit_trainer_connected(struct idle_exit *x)
{
    x->job_done = false;
    x->drain_logged = false;
    x->idle_since_ms = 0;
}

void idle_exit_job_done(struct idle_exit *x)
{
    x->job_done = true;
}

void idle_exit_stop(struct idle_exit *x, bool forced)
{
    x->job_done = true;
    x->stop_forced = forced;
}

void idle_exit_ask(struct idle_exit *x)
{
    const struct term_context *tc = *x->needs.term;
    if (x->asked_ms != 0) {
        return; /* the supervisor passes on what the system sends to all processes */
    }
    x->asked_ms = clock_ms();
    if (only_memory_has_newest(tc)) {
        x->asked = node_decision(tc->node)->watermark;
        log_info("received SIGTERM: version %" PRIu64 ".%" PRIu64 ", which is only in memory, is drained to storage "
                 "before the agent exits, within %u s (grace_s)",
                 x->asked.term, x->asked.step, x->needs.config->grace_s);
    }
    idle_exit_tick(x);
}

bool idle_exit_is_asked(const struct idle_exit *x)
{
    return x->asked_ms != 0;
}

bool idle_exit_is_job_done(const struct idle_exit *x)
{
    return x->job_done;
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t idle_exit_new(const struct idle_exit_setup *setup, struct idle_exit **out, struct error *err)
{
    struct idle_exit *x = calloc(1, sizeof(*x));
    if (x == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    x->needs = *setup;
    *out = x;
    return TCK_OK;
}

void idle_exit_free(struct idle_exit *x)
{
    free(x);
}
