/* SPDX-License-Identifier: Apache-2.0
 * A slot that a term which has ended left in quarantine. One node, one shard. */
#include "agent/driver/protocol_driver.h"
#include "agent/driver/slot_ops.h"
#include "agent/driver/twins.h"
#include "agent/ipc/ipc_server.h"
#include "agent/storage/storage_ops.h"
#include "agent/trainers/slot_writers.h"
#include "base/clock.h"
#include "base/config.h"
#include "one_node.h"
#include "tiers/memory.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

#define TERM        5
#define IMAGE_BYTES 4096
#define LONG_AGO_MS 60000

static const struct hash128 shard = {1, 1};
static const struct version before = {TERM - 1, 10};

static struct config config;
static struct memory *memory;
static struct client *trainers; /* none */
static struct term_context *tc;
static struct slot_ops *slot_ops;
static struct writers_setup writers = {.clients = &trainers, .term = &tc};
static struct event fed;
static bool reads; /* from storage into a slot */
static char logged[1024];

/* ---- what slot_writers.c and term_context.c need of the rest of the agent ---------------------------------------- */

void driver_step_node(struct term_context *term_context, const struct event *event)
{
    (void)term_context;
    fed = *event;
}

bool storage_writes_slots(const struct storage_ops *ops)
{
    (void)ops;
    return reads;
}

static void capture_log(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    strncat(logged, text, sizeof(logged) - strlen(logged) - 1);
}

/* ---- one slot ---------------------------------------------------------------------------------------------------- */

static void set_up(void)
{
    struct error err = {0};
    strcpy(config.node, "a");
    struct segment *segment = one_node_memory(shard, IMAGE_BYTES, &memory);
    struct slot_header header = {
        .state = SLOT_QUARANTINED, .version = before, .writer = {.process = process_of(getpid())}};
    segment_write_header(segment, 1, &header);
    struct term_setup term = {.config = &config, .memory = memory, .clients = &trainers};
    tc = one_node(&term, TERM, shard, IMAGE_BYTES);
    tc->local_shards[0].quarantined_ms[1] = clock_ms() - LONG_AGO_MS;
    cr_assert_eq(slot_ops_new(NULL, NULL, &slot_ops, &err), TCK_OK, "%s", err.text);
    writers.slot_ops = slot_ops;
    fed = (struct event){0};
    log_hand(capture_log, NULL, LOG_WARN);
}

static void tear_down(void)
{
    log_hand(NULL, NULL, LOG_WARN);
    slot_ops_free(slot_ops);
    term_context_free(tc);
    memory_free(memory);
}

TestSuite(slot_writers, .init = set_up, .fini = tear_down);

/* The process that the header names is this agent, which users must not kill. */
Test(slot_writers, a_read_from_storage_that_hangs_is_named_as_such)
{
    reads = true;
    writers_check(&writers);
    cr_assert_eq((int)fed.type, 0, "the slot is given away while storage may write into it");
    cr_assert_neq(strstr(logged, "a read from storage that this agent began in term 4"), NULL, "%s", logged);
    cr_assert_eq(strstr(logged, "kill"), NULL, "%s", logged);
}

Test(slot_writers, a_slot_that_no_read_is_under_way_for_is_freed)
{
    writers_check(&writers);
    cr_assert_eq((int)fed.type, (int)EVENT_WRITER_GONE);
    cr_assert(version_is(fed.version, before));
}
