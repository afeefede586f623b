/* SPDX-License-Identifier: Apache-2.0
 * A launch of the job: all ranks attach, restore, train and detach together; the exchange among ranks takes no time. If
 * one rank cannot continue, all are killed and started again, as launchers do. */
#include "sim.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PHASE_LIMIT_US (120 * S) /* every phase must end within this time, however many agents die in it */
#define LAUNCHES_MAX   200
#define STAGGER_US     50
#define REPAIR_US      (10 * S) /* a damaged copy must be found and fetched again within this time */
/* After this time, versions that can no longer commit, one per slot, have timed out one after the other. */
#define REST_US      (22 * S)
#define WAIT_STEP_US (100 * MS)
#define CALM_US      (6 * S)
#define LAST_US \
    (60 * S) /* the last step must reach storage within this time; failed drains are retried with growing pauses */
#define LAST_PAUSE_US (50 * MS)
#define END_LIMIT_US  (120 * S) /* from the last fault to the end of the job */

struct job job;

static struct launch *all; /* the newest first */

static void next_phase(void *ctx);
static void take_step(void *ctx);
static void rest(void *ctx);
static void watch(void *ctx);

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

static void killed(void *ctx)
{
    struct rank *rank = ctx;
    rank_end(rank);
    if (!rank->launch->dead) {
        launch_fail(rank->launch, sim_between(100, 2000) * MS, "an agent has killed a trainer");
    }
}

static void make_ranks(struct launch *launch)
{
    launch->count = launch->shape->ranks;
    launch->ranks = calloc(launch->count, sizeof(*launch->ranks));
    for (uint32_t r = 0; r < launch->count; r++) {
        struct rank *rank = &launch->ranks[r];
        rank->launch = launch;
        rank->number = r;
        rank->host = &sim.hosts[(launch->shape->first_host + r / launch->shape->ranks_per_host) % sim.host_count];
        rank->pid = process_begin(killed, rank);
    }
}

/* The user restarts the job with another number of ranks, or the scheduler assigns other machines. */
static const struct shape *next_shape(void)
{
    struct shape *shape = malloc(sizeof(*shape));
    if (shape == NULL) {
        abort();
    }
    uint32_t number = job.newest.number, first = job.newest.first_host;
    if (job.launches > 0 && sim_trait(TRAIT_RESHARDS) && !job.back && sim_chance(30)) {
        number = 1 - number;
    }
    if (job.launches > 0 && sim_trait(TRAIT_MOVES) && sim_chance(30)) {
        first = (first + 1) % sim.host_count;
    }
    *shape = job.shapes[number];
    shape->first_host = first;
    job.newest = *shape;
    job.back = false;
    return shape;
}

/* Preferably one of the newest steps on storage. */
static uint64_t step_to_ask(void)
{
    struct published_version p = {.version = VERSION_MOST};
    uint64_t step = TCK_NEWEST;
    if (!sim_trait(TRAIT_ASKS_STEP) || sim.us > faults.until_us || !sim_chance(40)) {
        return step;
    }
    while (published_next(&p) && (step == TCK_NEWEST || sim_chance(50))) {
        step = p.torn ? step : p.version.step;
    }
    if (step != TCK_NEWEST) {
        sim_log("step %" PRIu64 " is requested", step);
    }
    return step;
}

bool launch_asked_step_in(uint64_t term)
{
    const struct launch *launch = all;
    while (launch != NULL && launch->term != term) {
        launch = launch->next;
    }
    return launch != NULL && launch->asked_step != TCK_NEWEST;
}

uint64_t launch_hosts_in(uint64_t term)
{
    const struct launch *launch = all;
    while (launch != NULL && launch->term != term) {
        launch = launch->next;
    }
    uint64_t hosts = launch != NULL ? shape_hosts(launch->shape) : 0;
    for (uint32_t i = 0; launch != NULL && i < sim.host_count; i++) {
        hosts &= ~(sim.hosts[i].lost_us >= launch->began_us ? UINT64_C(1) << i : 0);
    }
    return hosts;
}

static struct launch *launch_new(const char *run_id, const struct shape *shape)
{
    struct launch *launch = calloc(1, sizeof(*launch));
    *launch =
        (struct launch){.shape = shape, .number = ++job.launches, .phase_us = sim.us, .began_us = sim.us, .next = all};
    snprintf(launch->run_id, sizeof(launch->run_id), "%s", run_id);
    launch->asked_step = step_to_ask();
    launch->spreads = sim_trait(TRAIT_SPREADS) && shape->ranks > 1;
    all = launch;
    make_ranks(launch);
    sim_after(S, NULL, watch, launch);
    return launch;
}

static void start_ranks(struct launch *launch)
{
    for (uint32_t r = 0; r < launch->count; r++) {
        rank_next(&launch->ranks[r]);
    }
}

static bool all_machines_run(void)
{
    uint32_t i = 0;
    while (i < sim.host_count && !sim.hosts[i].gone) {
        i++;
    }
    return i == sim.host_count;
}

void launch_begin(void *unused)
{
    (void)unused;
    if (job.launch != NULL) {
        return; /* another start has taken the job over */
    }
    if (job.second != NULL) {
        job.launch = job.second;
        job.newest = *job.second->shape;
        job.second = NULL;
        return;
    }
    if (!all_machines_run()) {
        sim_after(100 * MS, NULL, launch_begin, NULL);
        return;
    }
    if (job.launches == LAUNCHES_MAX) {
        sim_violation("the job was launched %u times and has not finished", LAUNCHES_MAX);
        return;
    }
    job.launch = launch_new(sim_trait(TRAIT_SAME_RUN) ? "run" : "", next_shape());
    sim_log("launch %u", job.launch->number);
    start_ranks(job.launch);
}

void launch_fail(struct launch *launch, uint64_t again_us, const char *why)
{
    if (launch->dead) {
        return;
    }
    sim_log("launch %u ends: %s", launch->number, why);
    launch->dead = true;
    for (uint32_t r = 0; r < launch->count; r++) {
        rank_kill(&launch->ranks[r]);
    }
    if (launch == job.launch) {
        job.launch = NULL;
        sim_after(again_us, NULL, launch_begin, NULL);
    } else if (launch == job.second) {
        job.second = NULL;
    }
}

void launch_host_lost(struct host *host)
{
    for (struct launch *launch = all; launch != NULL; launch = launch->next) {
        bool uses_it = false;
        for (uint32_t r = 0; !launch->dead && r < launch->count; r++) {
            if (launch->ranks[r].host == host) {
                uses_it = true;
                rank_end(&launch->ranks[r]);
            }
        }
        if (uses_it) {
            launch_fail(launch, sim_between(50, 1000) * MS, "a machine is lost");
        }
    }
}

/* ---- a second start of a job that runs --------------------------------------------------------------------------- */

/* Possibly on other machines than those of the running launch. */
static const struct shape *second_shape(const struct launch *launch)
{
    struct shape *shape = malloc(sizeof(*shape));
    if (shape == NULL) {
        abort();
    }
    *shape = *launch->shape;
    if (shape->hosts < sim.host_count && sim_chance(70)) {
        shape->first_host = (shape->first_host + (uint32_t)sim_between(1, sim.host_count - 1)) % sim.host_count;
    }
    return shape;
}

void launch_second(void)
{
    if (job.launch == NULL || job.launch->phase != PHASE_TRAIN || job.second != NULL || !all_machines_run()) {
        return;
    }
    char run_id[32];
    snprintf(run_id, sizeof(run_id), "run beside %u", job.launch->number);
    job.second = launch_new(run_id, second_shape(job.launch));
    job.second->takes_over = sim_chance(50);
    sim_log("launch %u, while launch %u runs%s", job.second->number, job.launch->number,
            job.second->takes_over ? ", to take the job over" : "");
    start_ranks(job.second);
}

static void end_old(void *launch)
{
    launch_fail(launch, 0, "another start has taken the job over");
}

static void try_to_return(void *ctx)
{
    struct launch *launch = ctx;
    if (!launch->dead && rank_claim_again(&launch->ranks[0])) {
        sim_log("launch %u asks for another term", launch->number);
    }
}

/* The second start got a term although the other start's trainers are alive, and no fault has happened since that would
 * allow it. */
static void take_over(struct launch *launch)
{
    struct launch *old = job.launch;
    if (!launch->takes_over && old != NULL && faults.last_us <= launch->began_us) {
        sim_violation("a second start takes the job from launch %u, whose trainers live", old->number);
    }
    job.launch = launch;
    job.newest = *launch->shape;
    job.second = NULL;
    if (old != NULL) {
        sim_log("launch %u has taken the job over", launch->number);
        sim_after(sim_between(0, 2000) * MS, NULL, try_to_return, old);
        sim_after(sim_between(100, 4000) * MS, NULL, end_old, old);
    }
}

void launch_claimed(struct rank *rank, uint64_t term)
{
    struct launch *launch = rank->launch;
    if (launch == job.second) {
        take_over(launch);
    }
    if (launch == job.launch) {
        launch->term = term;
        launch->noted = stored_notes(term);
    } else if (job.launch != NULL && faults.last_us <= job.launch->began_us) {
        sim_violation("launch %u takes the job back with term %" PRIu64, launch->number, term);
    }
}

void launch_reshape(const struct launch *launch)
{
    job.newest.number = 1 - launch->shape->number;
    job.back = true;
}

void launch_refused(struct rank *rank, const struct error *err)
{
    struct launch *launch = rank->launch;
    judge_memory_lacks(launch, err);
    if (launch == job.launch && launch->phase == PHASE_RESTORE && err->code == TCK_ERR_UNRECOVERABLE &&
        launch->asked_step == TCK_NEWEST) {
        judge_unrecoverable(launch, err);
    } else if (launch == job.launch && launch->phase == PHASE_RESTORE && err->code == TCK_ERR_LAYOUT) {
        launch_reshape(launch); /* the error named the layout that can be restored */
    }
    launch_fail(launch, sim_between(200, 2000) * MS, err->text);
}

/* ---- phases ------------------------------------------------------------------------------------------------------ */

static const char *const phase_names[] = {"hello",   "claim", "join",   "register", "map",
                                          "restore", "train", "detach", "over"};

/* Checks that no phase hangs. */
static void watch(void *ctx)
{
    struct launch *launch = ctx;
    uint64_t since = launch->phase_us > faults.last_us ? launch->phase_us : faults.last_us;
    if (launch->dead || launch->phase == PHASE_OVER) {
        return;
    }
    if (launch->phase != PHASE_TRAIN && sim.us > since + PHASE_LIMIT_US) {
        sim_violation("launch %u hangs in phase %s", launch->number, phase_names[launch->phase]);
    }
    sim_after(S, NULL, watch, launch);
}

/* Checks what the start would do if the user had given two machines the same name. */
static void check_namesakes(const struct launch *launch, const struct rank_hello *hellos)
{
    const struct world *world = &launch->world;
    struct rank_hello *named = calloc(launch->count, sizeof(*named));
    const char *name = world->nodes[0].name, *another = world->nodes[world->node_count - 1].name;
    struct world built;
    struct error err;
    for (uint32_t r = 0; r < launch->count; r++) {
        named[r] = hellos[r];
        if (strcmp(hellos[r].node.name, another) == 0) {
            snprintf(named[r].node.name, sizeof(named[r].node.name), "%s", name);
        }
    }
    if (world_build(launch->term, named, launch->count, &built, &err) == TCK_OK) {
        sim_violation("two machines with the name %s are treated as one", name);
    }
    free(named);
}

static void build_world(struct launch *launch)
{
    struct error err;
    struct rank_hello *hellos = calloc(launch->count, sizeof(*hellos));
    struct shard_info *infos = calloc((size_t)launch->count + 1, 2 * sizeof(*infos));
    uint32_t *counts = calloc(launch->count, sizeof(*counts));
    for (uint32_t r = 0; r < launch->count; r++) {
        hellos[r] = launch->ranks[r].hello;
        counts[r] = job.shards;
        rank_shard_ids(launch->shape, r, &infos[(size_t)job.shards * r]);
    }
    if (world_build(launch->term, hellos, launch->count, &launch->world, &err) != TCK_OK) {
        launch_fail(launch, 200 * MS, err.text); /* two agents had the name of one node */
    } else if (world_add_shards(&launch->world, infos, counts, &err) != TCK_OK) {
        abort();
    } else if (sim_trait(TRAIT_NAMESAKES) && launch->world.node_count > 1) {
        check_namesakes(launch, hellos);
        launch->forged = sim.us < faults.until_us && sim_chance(30);
    }
    free(hellos);
    free(infos);
    free(counts);
}

void launch_arrived(struct rank *rank)
{
    struct launch *launch = rank->launch;
    if (++launch->arrived == launch->count) {
        sim_after(sim_between(10, 500), NULL, next_phase, launch);
    }
}

static void begin_training(struct launch *launch)
{
    judge_restored(launch);
    if (!launch->ranks[0].fresh && !launch->ranks[0].resharded) {
        damage_base(launch->shape, launch->ranks[0].version);
    }
    bases_restored(launch);
    if (launch->dead) {
        return;
    }
    job.restores++;
    for (uint32_t r = 0; r < launch->count; r++) {
        rank_restored(&launch->ranks[r]);
    }
    launch->step = launch->ranks[0].fresh ? 0 : launch->ranks[0].version.step;
    if (sim.measure) {
        scale_train(launch);
    } else {
        sim_after(job.step_us, NULL, take_step, launch);
    }
}

static void wake_rank(void *ctx)
{
    rank_next(ctx);
}

static void interrupt(void *launch)
{
    launch_fail(launch, sim_between(5, 50) * MS, "its trainers are killed while they restore");
}

/* Interrupts the launch while messages of two nodes of this term are delayed until the next term. */
static void interrupt_soon(struct launch *launch)
{
    struct host *a = &sim.hosts[sim_between(0, sim.host_count - 1)];
    struct host *b = &sim.hosts[sim_between(0, sim.host_count - 1)];
    link_stall(a, b, sim_between(50, 900) * MS);
    sim_after(sim_between(0, 100) * MS, NULL, interrupt, launch);
}

/* True if a twin of the rank has that shard. */
static bool twin_has(const struct launch *launch, const struct rank *rank, uint32_t shard)
{
    uint32_t groups = launch->shape->ranks / launch->shape->twins;
    for (uint32_t r = 0; r < launch->count && shard == 0; r++) {
        if (r % groups == rank->number % groups && !launch->ranks[r].lacks[shard]) {
            return true;
        }
    }
    return false;
}

static bool can_pass_on(const struct launch *launch)
{
    bool lacking = false, given = true;
    for (uint32_t r = 0; r < launch->count; r++) {
        for (uint32_t i = 0; i < job.shards; i++) {
            bool lacks = launch->ranks[r].lacks[i];
            lacking = lacking || lacks;
            given = given && (!lacks || twin_has(launch, &launch->ranks[r], i));
        }
    }
    return given && !(lacking && sim_chance(20));
}

/* All ranks request a full restore if they cannot pass missing shards on to each other. */
static bool restores_again(struct launch *launch)
{
    if (launch->phase != PHASE_RESTORE || !launch->spreads || can_pass_on(launch)) {
        return false;
    }
    sim_log("the ranks cannot pass on the missing shards");
    launch->spreads = false;
    launch->arrived = 0;
    for (uint32_t r = 0; r < launch->count && !launch->dead; r++) {
        rank_restore_again(&launch->ranks[r]);
    }
    return true;
}

static void next_phase(void *ctx)
{
    struct launch *launch = ctx;
    if (launch->dead || restores_again(launch)) {
        return;
    }
    if (sim.measure) {
        scale_phase_over(launch);
    }
    launch->phase++;
    launch->phase_us = sim.us;
    launch->arrived = 0;
    launch->claimed_us = launch->phase == PHASE_CLAIM ? sim.us : launch->claimed_us;
    if (launch->phase == PHASE_RESTORE && sim.us < faults.until_us && sim_chance(20)) {
        interrupt_soon(launch);
    }
    if (launch->phase == PHASE_REGISTER) {
        faults_strike_recovery(launch->ranks[0].host);
    }
    if (launch->phase == PHASE_JOIN) {
        build_world(launch);
    } else if (launch->phase == PHASE_TRAIN) {
        begin_training(launch);
    } else if (launch->phase == PHASE_OVER) {
        sim_log("the job is done");
        job.done = true;
    }
    for (uint32_t r = 0; r < launch->count && !launch->dead && launch->phase < PHASE_OVER; r++) {
        struct rank *rank = &launch->ranks[r];
        rank->arrived = launch->phase == PHASE_TRAIN; /* it reconnects by itself */
        if (sim.measure) {
            sim_after((uint64_t)r * STAGGER_US, NULL, wake_rank, rank); /* each sends the whole world */
        } else if (job.stagger_us) {
            sim_after(sim_between(0, job.stagger_us), NULL, wake_rank, rank);
        } else {
            rank_next(rank);
        }
    }
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

static uint64_t last_multiple(uint64_t step, uint32_t of)
{
    return step / of * of;
}

/* True if everything that was to be saved has been saved, and no rank is busy. */
static bool is_finished(const struct launch *launch)
{
    for (uint32_t r = 0; r < launch->count; r++) {
        const struct rank *rank = &launch->ranks[r];
        if (!rank->registered || rank->saving || rank->asked) {
            return false;
        }
    }
    bool over = sim.us > faults.until_us && sim.us > faults.last_us && launch->step >= job.steps &&
                !bases_wait(launch) && !overload_lasts(launch);
    if (pressure_leaves_marks()) {
        return false;
    }
    if (launch->last_step > 0) {
        return job.committed >= launch->last_step && job.published >= launch->last_step;
    }
    return over && job.committed >= last_multiple(job.steps, job.save_every) &&
           job.published >= last_multiple(job.steps, job.store_every);
}

/* ---- the last step ----------------------------------------------------------------------------------------------- */

/* The last step may be aborted because of an earlier fault, and once because a copy of the base, whose fetch fails in
 * the meantime, needs its slot. The ranks then save another last step. */
static void check_last(struct launch *launch)
{
    uint64_t since = launch->last_us > faults.last_us ? launch->last_us : faults.last_us;
    bool over = judge_is_over((struct version){launch->term, launch->last_step});
    launch->last_aborts += over && launch->last_us > faults.last_us + CALM_US;
    if (launch->last_aborts > 1 || sim.us > since + LAST_US) {
        sim_violation("the last step, %" PRIu64 ", is %s although nothing fails", launch->last_step,
                      over ? "aborted" : "not saved to storage");
    }
    launch->last_us = over ? sim.us : launch->last_us;
    launch->last_step += over;
}

/* The trainers' saves are refused from then on, and the user's program ends with that error. */
static bool ends_fenced(struct launch *launch)
{
    bool fenced = false;
    for (uint32_t r = 0; r < launch->count; r++) {
        const struct rank *rank = &launch->ranks[r];
        fenced = fenced || (rank->registered && atomic_load(&rank->status->over_term) > launch->term);
    }
    if (fenced && launch == job.launch) {
        launch_fail(launch, sim_between(200, 2000) * MS, "a newer term has begun");
    }
    return fenced && launch == job.launch;
}

/* The ranks repeat the request until there is a free slot. */
static void save_last(void *ctx)
{
    struct launch *launch = ctx;
    if (!launch->dead && ends_fenced(launch)) {
        return;
    }
    if (launch->dead || is_finished(launch)) {
        launch->rests = true;
        sim_after(REST_US, NULL, rest, launch);
        return;
    }
    check_last(launch);
    for (uint32_t r = 0; r < launch->count; r++) {
        struct rank *rank = &launch->ranks[r];
        if (rank->sealed_step < launch->last_step) {
            rank_save(rank, launch->last_step, true, true);
        }
    }
    sim_after(LAST_PAUSE_US, NULL, save_last, launch);
}

/* Begins at an arbitrary time, while faults occur or after they have ended. */
static bool begins_last(struct launch *launch)
{
    uint64_t since =
        sim.seed % 2 ? faults.until_us : faults.last_us + CALM_US; /* while faults occur, or after they have ended */
    if (launch != job.launch || !sim_trait(TRAIT_LAST_STEP) || sim.us <= since || sim.us <= faults.until_us ||
        launch->step < job.steps || bases_wait(launch) || overload_lasts(launch)) {
        return false;
    }
    launch->last_step = launch->step + 1;
    launch->last_us = sim.us;
    faults_strike_last(launch->ranks[0].host);
    save_last(launch);
    return true;
}

static void end_training(void *ctx)
{
    struct launch *launch = ctx;
    if (!launch->dead && launch == job.launch) {
        judge_settled(launch);
        next_phase(launch);
    }
}

bool launch_rests(const struct launch *launch)
{
    return launch->rests;
}

/* Nothing new is committed from now on, so only the scrub can find new damage. */
static void rest(void *ctx)
{
    struct launch *launch = ctx;
    struct version version = {launch->term, job.committed};
    bool damaged = !launch->dead && launch == job.launch && damage_at_rest(launch->shape, version);
    sim_after(damaged ? REPAIR_US : 0, NULL, end_training, launch);
}

/* After its last regular step, the launch only waits for faults to end. */
static uint64_t pause_us(const struct launch *launch)
{
    bool overloaded = sim_trait(TRAIT_OVERLOADED);
    bool waits = launch->step > job.steps &&
                 (overloaded ? !overload_lasts(launch) : sim_trait(TRAIT_DAMAGE) || sim_trait(TRAIT_PRESSURE));
    return waits && job.step_us < WAIT_STEP_US ? WAIT_STEP_US : job.step_us;
}

static void take_step(void *ctx)
{
    struct launch *launch = ctx;
    if (launch->dead || ends_fenced(launch)) {
        return;
    }
    if (launch == job.launch && is_finished(launch)) {
        launch->rests = true;
        sim_after(REST_US, NULL, rest, launch);
        return;
    }
    if (begins_last(launch)) {
        return;
    }
    overload_count(launch);
    launch->step++;
    for (uint32_t r = 0; r < launch->count; r++) {
        struct rank *rank = &launch->ranks[r];
        if (rank->status != NULL) {
            atomic_store(&rank->status->step_at_ns, sim.us * 1000);
            atomic_store(&rank->status->current_step, launch->step);
            atomic_store(&rank->status->step_ns, job.step_us * 1000);
        }
        if (launch->step % job.save_every == 0) {
            overload_save(rank, launch->step, launch->step % job.store_every == 0);
        }
    }
    if (launch == job.launch && launch->step > job.steps && sim.us - launch->phase_us > END_LIMIT_US &&
        sim.us > faults.last_us + END_LIMIT_US) {
        sim_violation("saves have no effect: step %" PRIu64 ", committed %" PRIu64 ", published %" PRIu64, launch->step,
                      job.committed, job.published);
        for (uint32_t i = 0; i < sim.host_count; i++) {
            host_show_slots(&sim.hosts[i]);
        }
    }
    sim_after(pause_us(launch), NULL, take_step, launch);
}
