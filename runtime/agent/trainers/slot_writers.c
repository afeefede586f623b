/* SPDX-License-Identifier: Apache-2.0
 * Tracks trainers that may still write into slots that are no longer theirs. A trainer whose connection has ended, or
 * whose term is over, may have been stopped or frozen in the middle of a copy, and resume the copy later. Until it has
 * ended, or has reported that it has stopped copying, its slot stays in quarantine. The slot's header names its writer,
 * so a restarted agent knows it as well. */
#include "agent/trainers/slot_writers.h"

#include "agent/driver/protocol_driver.h"
#include "agent/driver/slot_ops.h"
#include "agent/driver/term_context.h"
#include "agent/ipc/ipc_server.h"
#include "agent/storage/storage_ops.h"
#include "base/clock.h"
#include "tiers/segment.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define TELL_AFTER_MS 2000
#define TOLD          UINT64_MAX

/* One slot in quarantine. */
struct orphan {
    struct local_shard *local_shard;
    uint32_t slot;            /* in the node machine */
    uint32_t k;               /* in its segment */
    const struct slot *state; /* its state in the machine */
    const struct slot_writer *writer;
};

/* The next slot in quarantine, from `slot` on; false if there is none, or while memory is being allocated for a newer
 * term, whose context checks again. */
static bool next_orphan(const struct writers_setup *writers, const struct term_context *tc, uint32_t slot,
                        struct orphan *out)
{
    bool steady = slot_ops_memory(writers->slot_ops) == MEMORY_STEADY;
    for (; tc != NULL && !tc->closed && steady && slot < node_slot_total(tc->node); slot++) {
        const struct slot *state = node_slot(tc->node, slot);
        if (state->state == SLOT_QUARANTINED && !tc->local_shards[state->shard].gone) {
            *out = (struct orphan){.slot = slot, .state = state};
            out->local_shard = term_context_slot(tc, slot, &out->k);
            out->writer = &segment_header(out->local_shard->segment, out->k)->writer;
            return true;
        }
    }
    return false;
}

static void free_orphan(struct term_context *tc, const struct orphan *o, const char *why)
{
    struct event event = {.type = EVENT_WRITER_GONE, .slot = o->slot, .version = o->state->version};
    log_info("slot %u is usable again: process %d (rank %u of term %" PRIu64 ") %s", o->slot,
             (int)o->writer->process.pid, o->writer->rank, o->state->version.term, why);
    o->local_shard->quarantined_ms[o->k] = 0;
    driver_step_node(tc, &event);
}

/* A process of another PID namespace counts as ended when its connection has: the kernel releases a process's memory
 * before its sockets. */
static bool writer_has_ended(const struct writers_setup *writers, const struct orphan *o)
{
    if (o->writer->process.pid > 0) {
        return process_has_ended(o->writer->process);
    }
    return client_of_rank(*writers->clients, o->state->version.term, o->writer->rank) == NULL;
}

/* A read from storage that was left behind frees its slot when it ends, unless no term has memory at that time.
 */
static bool was_left_behind(const struct writers_setup *writers, const struct orphan *o)
{
    return o->writer->process.pid == getpid() && !storage_writes_slots(writers->storage_ops);
}

void writers_describe(const struct slot_writer *writer, struct version version, char out[WRITER_TEXT])
{
    if (writer->process.pid == getpid()) {
        snprintf(out, WRITER_TEXT, "a read from storage that this agent began in term %" PRIu64 " has not ended",
                 version.term);
    } else {
        snprintf(out, WRITER_TEXT,
                 "process %d, which was rank %u of term %" PRIu64 ", is still alive: end it, with kill -9 if necessary",
                 (int)writer->process.pid, writer->rank, version.term);
    }
}

/* Most writers end soon, so a writer is logged only if it stays alive, and only once. */
static void warn_about(const struct orphan *o)
{
    uint64_t *since_ms = &o->local_shard->quarantined_ms[o->k];
    if (*since_ms == 0) {
        *since_ms = clock_ms();
    } else if (*since_ms != TOLD && clock_ms() - *since_ms >= TELL_AFTER_MS) {
        char writer[WRITER_TEXT];
        *since_ms = TOLD;
        writers_describe(o->writer, o->state->version, writer);
        log_warn("slot %u is in quarantine, so saves have one slot fewer: %s", o->slot, writer);
    }
}

void writers_check(const struct writers_setup *writers)
{
    struct term_context *tc = *writers->term;
    struct orphan o;
    for (uint32_t slot = 0; next_orphan(writers, tc, slot, &o); slot = o.slot + 1) {
        if (version_is(segment_seal(o.local_shard->segment, o.k).version, o.state->version)) {
            free_orphan(tc, &o, "has finished its copy");
        } else if (writer_has_ended(writers, &o)) {
            free_orphan(tc, &o, "has ended");
        } else if (was_left_behind(writers, &o)) {
            free_orphan(tc, &o, "no longer reads from storage");
        } else {
            warn_about(&o);
        }
    }
}

static bool is_writer(const struct client *client, const struct orphan *o)
{
    const struct process *p = &o->writer->process;
    return client->trainer && client->rank == o->writer->rank && client->process.pid == p->pid &&
           client->process.start == p->start;
}

void writers_handle_step(const struct writers_setup *writers, struct client *client, uint64_t step)
{
    struct term_context *tc = *writers->term;
    struct orphan o;
    for (uint32_t slot = 0; next_orphan(writers, tc, slot, &o); slot = o.slot + 1) {
        if (is_writer(client, &o) && version_is(o.state->version, (struct version){client->term, step})) {
            free_orphan(tc, &o, "has abandoned its copy");
        }
    }
}

void writers_returned(const struct writers_setup *writers, struct client *client, uint64_t term)
{
    struct term_context *tc = *writers->term;
    struct orphan o;
    for (uint32_t slot = 0; next_orphan(writers, tc, slot, &o); slot = o.slot + 1) {
        if (is_writer(client, &o) && o.state->version.term == term) {
            free_orphan(tc, &o, "has reconnected and is not copying");
        }
    }
}

bool writers_of_rank(const struct writers_setup *writers, const struct term_context *tc, uint32_t rank,
                     struct slot_writer *writer_out, struct version *version_out)
{
    struct orphan o;
    for (uint32_t slot = 0; next_orphan(writers, tc, slot, &o); slot = o.slot + 1) {
        if (tc->shards[o.state->shard].storing_rank == rank) {
            *writer_out = *o.writer;
            *version_out = o.state->version;
            return true;
        }
    }
    return false;
}

json_t *writers_json(const struct writers_setup *writers)
{
    const struct term_context *tc = *writers->term;
    json_t *list = json_array();
    struct orphan o;
    for (uint32_t slot = 0; next_orphan(writers, tc, slot, &o); slot = o.slot + 1) {
        char shard[HASH128_TEXT], writer[WRITER_TEXT];
        json_t *json = json_object();
        writers_describe(o.writer, o.state->version, writer);
        hash128_text(segment_info(o.local_shard->segment).shard, shard);
        json_add_str(json, "shard", shard);
        json_add_u64(json, "slot", o.k);
        json_add_str(json, "writer", writer);
        json_add_u64(json, "pid", (uint64_t)o.writer->process.pid);
        json_add_u64(json, "rank", o.writer->rank);
        json_add_u64(json, "term", o.state->version.term);
        json_add(list, NULL, json);
    }
    return list;
}
