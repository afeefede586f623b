/* SPDX-License-Identifier: Apache-2.0
 * Measures one version of a large job: the messages between agents, and the cost for the coordinator's agent and for
 * the others. The job attaches, registers and saves one version, which is drained when it is committed; then a machine
 * is lost, and the job is launched again and restores from memory; then all machines are lost, and it restores from
 * storage. */
#include "sim.h"

#include "agent/driver/protocol_driver.h"
#include "heap.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define LOOK_US   MS
#define LIMIT_US  (300 * S) /* time limit of a phase */
#define RETURN_US (100 * MS)
#define SENDS_MAX \
    40 /* messages of the coordinator to each other node in a phase: answers to one node must not go to all */

/* What a restore may look up on storage. A shard: its file when versions are listed, then its directory and its file. A
 * node: the version's directory and its manifest. */
#define SHARD_LOOKUPS 3
#define NODE_LOOKUPS  2
#define JOB_LOOKUPS   64

#define COPY_SESSIONS 4 /* of the coordinator's node */

/* The phases, in order. */
enum scale_phase {
    SCALE_ATTACH,
    SCALE_REGISTER,
    SCALE_VERSION,
    SCALE_DRAIN,
    SCALE_LOSS,
    SCALE_RESTORE_MEMORY,
    SCALE_RESTART,
    SCALE_RESTORE_STORAGE,
    SCALE_PHASES
};
static const char *const names[] = {"attach", "register",       "version", "drain",
                                    "loss",   "restore_memory", "restart", "restore_storage"};

static struct {
    enum scale_phase phase;
    uint64_t began_us;
    uint32_t lost; /* the host that is lost first */
    bool json;
    struct counts *before; /* of each host at the beginning of the phase */
} scale;

/* ---- the cost of a phase ----------------------------------------------------------------------------------------- */

struct cost {
    struct counts counts;
    uint64_t heap; /* peak */
    uint64_t endpoints;
};

static struct cost cost_of(uint32_t host)
{
    const struct counts *now = &sim.hosts[host].counts, *then = &scale.before[host];
    return (struct cost){.counts = {.messages = now->messages - then->messages,
                                    .bytes = now->bytes - then->bytes,
                                    .received = now->received - then->received,
                                    .received_bytes = now->received_bytes - then->received_bytes,
                                    .transferred = now->transferred - then->transferred,
                                    .stored = now->stored - then->stored,
                                    .lookups = now->lookups - then->lookups,
                                    .read = now->read - then->read,
                                    .frames = now->frames - then->frames,
                                    .ns = now->ns - then->ns},
                         .heap = heap_use(sim.hosts[host].heap_owner).peak,
                         .endpoints = link_endpoints(&sim.hosts[host])};
}

static void add(struct cost *sum, const struct cost *x)
{
    sum->counts.messages += x->counts.messages;
    sum->counts.bytes += x->counts.bytes;
    sum->counts.received += x->counts.received;
    sum->counts.received_bytes += x->counts.received_bytes;
    sum->counts.transferred += x->counts.transferred;
    sum->counts.stored += x->counts.stored;
    sum->counts.lookups += x->counts.lookups;
    sum->counts.read += x->counts.read;
    sum->counts.frames += x->counts.frames;
    sum->counts.ns += x->counts.ns;
    sum->heap += x->heap;
    sum->endpoints += x->endpoints;
}

static void print_cost(const char *who, const struct cost *sum, double count)
{
    const struct counts *c = &sum->counts;
    double sent = (double)c->messages / count, received = (double)c->received / count;
    double bytes = (double)c->bytes / count, images = (double)c->transferred / count;
    double stored = (double)c->stored / count, frames = (double)c->frames / count;
    double lookups = (double)c->lookups / count, read = (double)c->read / count;
    double ms = (double)c->ns / 1e6 / count, heap_kib = (double)sum->heap / 1024 / count;
    double endpoints = (double)sum->endpoints / count;
    if (scale.json) {
        printf(", \"%s\": {\"sent\": %.1f, \"received\": %.1f, \"bytes\": %.0f, \"received_bytes\": %.0f, "
               "\"image_bytes\": %.0f, \"stored_bytes\": %.0f, \"lookups\": %.2f, \"read_bytes\": %.1f, \"frames\": "
               "%.1f, \"ms\": %.4f, "
               "\"heap_kib\": %.1f, \"endpoints\": %.1f}",
               who, sent, received, bytes, (double)c->received_bytes / count, images, stored, lookups, read, frames, ms,
               heap_kib, endpoints);
    } else {
        printf(" | %8.1f %8.1f %11.0f %8.0f %8.0f %7.1f %8.0f %6.1f %10.3f %9.1f %7.1f", sent, received, bytes, images,
               stored, lookups, read, frames, ms, heap_kib, endpoints);
    }
}

static void begin_count(void)
{
    for (uint32_t i = 0; i < sim.host_count; i++) {
        scale.before[i] = sim.hosts[i].counts;
    }
    heap_peaks_begin();
    scale.began_us = sim.us;
}

/* What a restore asks storage for must not grow with the product of nodes and shards. */
static void check_lookups(uint64_t lookups)
{
    uint64_t shards = job.newest.ranks;
    uint64_t most = SHARD_LOOKUPS * shards + NODE_LOOKUPS * sim.host_count + JOB_LOOKUPS;
    if (lookups > most) {
        sim_violation("a restore of %" PRIu64 " shards looks up %" PRIu64 " names on storage, %" PRIu64 " are enough",
                      shards, lookups, most);
    }
}

/* Until the first loss, the coordinator's agent has connections only with the leaders of groups of nodes, of which
 * there are about the square root of the number of nodes, and with those that it exchanges copies with. */
static void check_endpoints(enum scale_phase phase, uint64_t endpoints)
{
    uint32_t groups = 1;
    while (groups * groups < sim.host_count) {
        groups++;
    }
    uint64_t most = 2 * (groups + (uint64_t)COPY_SESSIONS);
    bool has_leaders = sim.leaders_from > 0 && sim.host_count >= sim.leaders_from;
    if (phase <= SCALE_DRAIN && has_leaders && endpoints > most) {
        sim_violation("the coordinator has %" PRIu64 " connections in the phase %s, %" PRIu64 " are enough", endpoints,
                      names[phase], most);
    }
}

/* The current phase has ended: prints its cost for the coordinator and, on average, for the other nodes. */
static void end_phase(enum scale_phase phase)
{
    struct cost coordinator = cost_of(0), others = {0};
    if (phase != scale.phase) {
        sim_violation("the phase %s ends during the phase %s", names[phase], names[scale.phase]);
        return;
    }
    for (uint32_t i = 1; i < sim.host_count; i++) {
        struct cost one = cost_of(i);
        add(&others, &one);
    }
    double ms = (double)(sim.us - scale.began_us) / (double)MS;
    if (phase == SCALE_RESTORE_STORAGE) {
        check_lookups(coordinator.counts.lookups + others.counts.lookups);
    }
    printf(scale.json ? "{\"phase\": \"%s\", \"world_ms\": %.1f" : "%-15s %8.1f", names[phase], ms);
    print_cost("coordinator", &coordinator, 1);
    print_cost("node", &others, sim.host_count - 1);
    printf(scale.json ? "}\n" : "\n");
    fflush(stdout);
    if (coordinator.counts.messages > (uint64_t)SENDS_MAX * sim.host_count) {
        sim_violation("the coordinator sends %" PRIu64 " messages to %u nodes in the phase %s",
                      coordinator.counts.messages, sim.host_count, names[phase]);
    }
    check_endpoints(phase, coordinator.endpoints);
    scale.phase++;
    begin_count();
}

static void print_heading(void)
{
    if (!scale.json) {
        static const char columns[] =
            " |    sends     gets       bytes   images   stored lookups     read frames         ms  heap KiB    ends";
        printf("%-24s | %-102s | another node, on average\n%-15s %8s%s%s\n", "", "the coordinator's", "phase",
               "world ms", columns, columns);
    }
}

static void print_end(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double mib = (double)usage.ru_maxrss / 1024;
    double seconds = (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6;
    printf(scale.json ? "{\"process\": {\"cpu_s\": %.2f, \"peak_mib\": %.0f}}\n"
                      : "the process: %.2f s of a processor, %.0f MiB\n",
           seconds, mib);
}

/* ---- the conditions for the end of a phase ---------------------------------------------------------------------- */

static struct term_context *term_of(uint32_t host)
{
    const struct agent *agent = sim.hosts[host].agent;
    struct term_context *tc = agent != NULL ? agent->term_context : NULL;
    return tc != NULL && !tc->closed && job.launch != NULL && tc->world.term == job.launch->term ? tc : NULL;
}

static bool all_are_notified(const struct launch *launch, bool of_publish)
{
    uint32_t r = 0;
    while (r < launch->count && launch->ranks[r].status != NULL &&
           atomic_load(of_publish ? &launch->ranks[r].status->published_step
                                  : &launch->ranks[r].status->committed_step) > 0) {
        r++;
    }
    return r == launch->count;
}

/* True if the base has all its copies again and all nodes know it. */
static bool all_are_based(void)
{
    uint32_t i = 0;
    while (i < sim.host_count && term_of(i) != NULL && node_decision(term_of(i)->node)->based) {
        i++;
    }
    return i == sim.host_count;
}

/* Checks the source of the restore; rank.c compares the restored bytes with the saved ones. */
static void check_restored(const struct launch *launch, bool from_storage)
{
    uint64_t wanted = 0, read = 0;
    for (uint32_t r = 0; r < launch->count; r++) {
        struct shard_info infos[2];
        rank_shard_ids(launch->shape, r, infos);
        wanted += r < launch->count / launch->shape->twins ? infos[0].image_bytes : 0; /* twins' is read once */
        if (launch->ranks[r].fresh || launch->ranks[r].version.step != 1) {
            sim_violation("rank %u did not restore step 1", r);
        }
    }
    for (uint32_t i = 0; i < sim.host_count; i++) {
        read += sim.hosts[i].counts.stored - scale.before[i].stored;
    }
    if (from_storage ? read < wanted || (sim.twin_mib > 0 && read > wanted + wanted / 2) : read > 0) {
        sim_violation("%" PRIu64 " bytes are read from storage, of %" PRIu64, read, wanted);
    }
}

/* ---- the job ----------------------------------------------------------------------------------------------------- */

static void save(struct launch *launch)
{
    launch->step = 1;
    for (uint32_t r = 0; r < launch->count; r++) {
        rank_save(&launch->ranks[r], launch->step, false, false);
    }
}

static void request_drain(void *ctx)
{
    struct event event = {.type = EVENT_DRAIN_ASKED};
    (void)ctx;
    driver_step_coordinator(term_of(0), &event);
}

static void lose_all(void)
{
    for (uint32_t i = 0; i < sim.host_count; i++) {
        host_lose(&sim.hosts[i], RETURN_US);
    }
}

/* Begins the next phase if the current one is over. */
static void advance(struct launch *launch)
{
    if (scale.phase == SCALE_VERSION && all_are_notified(launch, false)) {
        judge_all();
        end_phase(SCALE_VERSION);
        host_run(&sim.hosts[0], request_drain, NULL);
    } else if (scale.phase == SCALE_DRAIN && all_are_notified(launch, true)) {
        judge_all();
        end_phase(SCALE_DRAIN);
        host_lose(&sim.hosts[scale.lost], RETURN_US);
    } else if (scale.phase == SCALE_RESTORE_MEMORY && all_are_based()) {
        check_restored(launch, false);
        end_phase(SCALE_RESTORE_MEMORY);
        lose_all();
    } else if (scale.phase == SCALE_RESTORE_STORAGE && all_are_based()) {
        check_restored(launch, true);
        end_phase(SCALE_RESTORE_STORAGE);
        job.done = true;
    }
}

static void advance_later(void *ctx)
{
    struct launch *launch = ctx;
    if (!launch->dead && scale.phase < SCALE_PHASES) {
        advance(launch);
    }
    if (!launch->dead && scale.phase < SCALE_PHASES) {
        sim_after(LOOK_US, NULL, advance_later, launch);
    }
}

void scale_train(struct launch *launch)
{
    if (scale.phase == SCALE_VERSION) {
        save(launch);
    }
    advance_later(launch);
}

void scale_phase_over(const struct launch *launch)
{
    if (launch->phase == PHASE_JOIN && scale.phase == SCALE_ATTACH) {
        end_phase(SCALE_ATTACH);
    } else if (launch->phase == PHASE_RESTORE && scale.phase == SCALE_REGISTER) {
        end_phase(SCALE_REGISTER);
    } else if (launch->phase == PHASE_MAP && scale.phase != SCALE_REGISTER) {
        end_phase(launch->number == 2 ? SCALE_LOSS : SCALE_RESTART);
    }
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static void plan_job(uint32_t hosts, uint32_t ranks_per_host)
{
    struct shape shape = {
        .ranks_per_host = ranks_per_host, .ranks = hosts * ranks_per_host, .twins = 1, .hosts = hosts};
    job = (struct job){.shapes = {shape, shape},
                       .newest = shape,
                       .shards = 1,
                       .image_bytes = 128,
                       .step_us = S,
                       .steps = 1,
                       .save_every = 1,
                       .store_every = 1000,
                       .copies = 2,
                       .kept = 3};
    if (sim.twin_mib > 0) {
        job.shapes[0].twins = job.shapes[1].twins = job.newest.twins = shape.ranks;
        job.image_bytes = sim.twin_mib << 20;
    }
}

static void run(void)
{
    while (!job.done && sim_step()) {
        if (sim.us > scale.began_us + LIMIT_US) {
            sim_violation("the phase %s does not end", names[scale.phase]);
        }
    }
    if (!job.done && sim.violation[0] == '\0') {
        sim_violation("no more events happen in the phase %s", names[scale.phase]);
    }
}

void scale_run(uint32_t hosts, uint32_t ranks_per_host, bool json)
{
    sim.measure = true;
    /* Each agent has buffers of which it touches little here: huge pages would take eight times the memory. */
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    heap_keep_lists();
    scale.json = json;
    scale.lost = hosts / 2;
    scale.before = calloc(hosts, sizeof(*scale.before));
    if (hosts < 2 || ranks_per_host == 0 || scale.before == NULL) {
        sim_violation("a job has two nodes or more");
        return;
    }
    plan_job(hosts, ranks_per_host);
    print_heading();
    make_hosts(hosts, 2, false);
    begin_count();
    sim_after(10 * MS, NULL, launch_begin, NULL);
    run();
    print_end();
}
