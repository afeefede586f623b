/* SPDX-License-Identifier: Apache-2.0
 * A trainer that trains nothing: one process per rank, whose tensors at step s are a function of (tensor, s) alone, so
 * that what is restored can be checked to the bit without a reference copy. Ranks meet through files in a directory.
 *
 * Tensors: "params", the same on all ranks of a group of --twins ranks; "moments", this rank's alone; a blob with the
 * step and the launch that computed it (--launch), on which the contents depend too. Prints one line per event; exits 3
 * if a restored byte is wrong. With --lockstep no rank begins a step before all ended the one before. */
#include "hold_seal.h"
#include "journal.h"
#include "meeting.h"
#include "tierckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define HELD_MS 120000

struct options {
    const char *config, *json, *oob, *journal, *hold_file, *freeze_file;
    uint64_t rank, world;
    uint64_t twins;   /* ranks r with equal r / twins are twins */
    uint64_t launch;  /* which start of the job this is */
    uint64_t steps;   /* stop after this step */
    uint64_t count;   /* elements per tensor */
    uint64_t changes; /* how many of them, the first ones, change from step to step; 0: all */
    uint64_t step_ms;
    uint64_t hold_seal, spoil_seal; /* see hold_seal.h; 0: never */
    uint64_t hold_meet; /* after the ranks have met so often, wait for the file "go" beside their files; 0: never */
    int wait_commit;    /* wait for the commit of each saved step */
    int wait_drained;   /* wait for the newest storage save at the end */
    int save_last;      /* the last step is in storage at the end, */
    uint64_t last_ms;   /* which may take so long */
    int no_restore;
    uint64_t restore_step;
    uint64_t back_to; /* after the last step restore this one and train a little more; 0: do not */
    int lockstep;
    int eager; /* the moments change right after the save call */
    int done;  /* detach says that the job is done */
};

/* The blob. */
struct origin {
    uint64_t step, launch;
};

struct trainer {
    struct options o;
    tck_client_t *client;
    uint64_t *params, *moments;
    uint64_t step;
    uint64_t launch;          /* that computed what the tensors hold */
    volatile uint64_t *steps; /* with --lockstep: where each rank is, shared by all */
    uint64_t committed, published;
    int trouble;          /* storage has some */
    uint64_t late_max_us; /* by which the machine let a pause last longer than it should */
    struct connectivity connectivity;
};

/* ---- contents ------------------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ (x >> 33);
}

static uint64_t params_seed(const struct trainer *t, uint64_t step)
{
    return mix(1000003ull * (t->o.rank / t->o.twins + 1)) ^ mix(step) ^ mix(t->launch << 32);
}

static uint64_t moments_seed(const struct trainer *t, uint64_t step)
{
    return mix(7777777ull * (t->o.rank + 1)) ^ mix(step) ^ mix(t->launch << 32);
}

static uint64_t element(const struct options *o, uint64_t i, uint64_t seed)
{
    return (o->changes == 0 || i < o->changes ? seed : 0) + i * 0x9e3779b97f4a7c15ull;
}

static void fill(const struct options *o, uint64_t *data, uint64_t seed)
{
    for (uint64_t i = 0; i < o->count; i++) {
        data[i] = element(o, i, seed);
    }
}

static int check(const struct options *o, const uint64_t *data, uint64_t seed, const char *name)
{
    for (uint64_t i = 0; i < o->count; i++) {
        if (data[i] != element(o, i, seed)) {
            printf("WRONG %s element %" PRIu64 "\n", name, i);
            return 1;
        }
    }
    return 0;
}

/* ---- ranks meet ---------------------------------------------------------------------------------------------- */

static void hold_meet(const struct trainer *t)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/go", t->o.oob);
    printf("HELD\n");
    for (int waited = 0; waited < HELD_MS && access(path, F_OK) != 0; waited++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static int allgather(void *ctx, const void *in, void *out, size_t len)
{
    struct trainer *t = ctx;
    int status = meeting_allgather(&t->connectivity, in, out, len);
    if (status == 0 && t->connectivity.round == t->o.hold_meet) {
        hold_meet(t);
    }
    return status;
}

static int open_steps(struct trainer *t)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/steps", t->o.oob);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    size_t size = t->o.world * sizeof(*t->steps);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0) {
        return 2;
    }
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    t->steps = at;
    return at == MAP_FAILED ? 2 : 0;
}

/* As the collectives of a training do; like those it hangs when a rank is gone, until the launcher ends it. */
static void meet(struct trainer *t)
{
    if (t->steps == NULL) {
        return;
    }
    t->steps[t->o.rank] = t->step;
    for (uint64_t r = 0; r < t->o.world; r++) {
        while (t->steps[r] < t->step) {
            nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
        }
    }
}

/* ---- the job ------------------------------------------------------------------------------------------------- */

static int fail(const struct trainer *t, const char *what)
{
    printf("ERROR %s: %s\n", what, tck_errmsg(t->client));
    journal("failed", ",\"what\":\"%s\"", what);
    return 2;
}

static tck_status_t add(struct trainer *t, const char *key, uint64_t *data, const char *group)
{
    tck_record_t r = {
        .struct_size = sizeof(r), .key = key, .dtype = TCK_U64, .ndim = 1, .addr = data, .replica_group = group};
    r.when = t->o.eager && data == t->moments ? TCK_EAGER : TCK_LAZY;
    r.global_shape[0] = r.local_shape[0] = t->o.count;
    return tck_add_record(t->client, &r, NULL);
}

static int setup(struct trainer *t)
{
    char params[64], moments[64], group[64];
    snprintf(params, sizeof(params), "params.%u", (unsigned)(t->o.rank / t->o.twins));
    snprintf(group, sizeof(group), "twins.%u", (unsigned)(t->o.rank / t->o.twins));
    snprintf(moments, sizeof(moments), "moments.%u", (unsigned)t->o.rank);
    tck_attach_params_t p = {.struct_size = sizeof(p),
                             .config_file = t->o.config,
                             .config_json = t->o.json,
                             .rank = (int)t->o.rank,
                             .world_size = (int)t->o.world,
                             .oob = {.allgather = allgather, .ctx = t}};
    if (tck_attach(&p, &t->client) != TCK_OK) {
        return fail(t, "attach");
    }
    if (add(t, params, t->params, t->o.twins > 1 ? group : NULL) != TCK_OK ||
        add(t, moments, t->moments, NULL) != TCK_OK || tck_add_blob(t->client, "step", 64, NULL) != TCK_OK) {
        return fail(t, "add");
    }
    return tck_register(t->client) == TCK_OK ? 0 : fail(t, "register");
}

static int check_all(struct trainer *t)
{
    struct origin origin = {0};
    size_t size = 0;
    if (tck_get_blob(t->client, "step", &origin, sizeof(origin), &size) != TCK_OK || size != sizeof(origin) ||
        origin.step != t->step) {
        printf("WRONG blob: %" PRIu64 "\n", origin.step);
        return 3;
    }
    t->launch = origin.launch;
    return check(&t->o, t->params, params_seed(t, t->step), "params") ||
                   check(&t->o, t->moments, moments_seed(t, t->step), "moments")
               ? 3
               : 0;
}

static int restore(struct trainer *t)
{
    tck_restored_t r = {.struct_size = sizeof(r)};
    tck_status_t status = tck_restore(t->client, t->o.restore_step, &r);
    if (status == TCK_ERR_NOENT) {
        printf("FRESH\n");
        journal("fresh", ",\"step\":0");
        return 0;
    }
    if (status != TCK_OK) {
        return fail(t, "restore");
    }
    t->step = r.version.step;
    printf("RESTORED term=%" PRIu64 " step=%" PRIu64 " local=%" PRIu64 " twin=%" PRIu64 " peer=%" PRIu64
           " storage=%" PRIu64 " newest=%" PRIu64 " seconds=%.3f\n",
           r.version.term, r.version.step, r.bytes_local, r.bytes_twin, r.bytes_peer, r.bytes_storage, r.newest_step,
           r.seconds);
    int wrong = check_all(t);
    journal("restored",
            ",\"term\":%" PRIu64 ",\"step\":%" PRIu64 ",\"origin\":%" PRIu64 ",\"right\":%s,\"local\":%" PRIu64
            ",\"twin\":%" PRIu64 ",\"peer\":%" PRIu64 ","
            "\"storage\":%" PRIu64 ",\"newest\":%" PRIu64 ",\"seconds\":%.3f",
            r.version.term, r.version.step, t->launch, wrong ? "false" : "true", r.bytes_local, r.bytes_twin,
            r.bytes_peer, r.bytes_storage, r.newest_step, r.seconds);
    return wrong;
}

/* Storage trouble that begins, or ends. */
static void look_at_health(struct trainer *t)
{
    tck_health_t h = {.struct_size = sizeof(h)};
    if (tck_health(t->client, &h) == TCK_OK && (h.storage != TCK_OK) != t->trouble) {
        t->trouble = h.storage != TCK_OK;
        printf("HEALTH %s undrained=%" PRIu64 " %s\n", t->trouble ? tck_strerror(h.storage) : "good", h.undrained_count,
               h.storage_text);
    }
}

/* What the agent has made known since it was last looked at. */
static void look(struct trainer *t)
{
    look_at_health(t);
    tck_stats_t s = {.struct_size = sizeof(s)};
    if (tck_stats(t->client, &s) != TCK_OK) {
        return;
    }
    if (s.committed_step > t->committed) {
        t->committed = s.committed_step;
        journal("committed", ",\"step\":%" PRIu64, s.committed_step);
    }
    if (s.published_step > t->published) {
        t->published = s.published_step;
        journal("published", ",\"step\":%" PRIu64, s.published_step);
    }
}

/* The save call of a step: its intent is in the journal before it, what became of it after it. */
static tck_status_t save(struct trainer *t, int *started)
{
    struct origin origin = {t->step, t->launch};
    tck_due_t due;
    if (tck_set_blob(t->client, "step", &origin, sizeof(origin)) != TCK_OK ||
        tck_save_due(t->client, t->step, &due) != TCK_OK) {
        return TCK_ERR_INTERNAL;
    }
    if (due != TCK_DUE_NOTHING) {
        journal("save", ",\"step\":%" PRIu64, t->step);
    }
    tck_status_t status = tck_save_if_needed(t->client, t->step, started);
    if (status == TCK_OK && due != TCK_DUE_NOTHING && !*started) {
        printf("SKIPPED %" PRIu64 ": %s\n", t->step, tck_errmsg(t->client));
        journal("skipped", ",\"step\":%" PRIu64, t->step);
    }
    return status;
}

static tck_status_t fence(struct trainer *t, int started)
{
    tck_stats_t s = {.struct_size = sizeof(s)};
    tck_status_t status = tck_fence(t->client);
    if (status == TCK_OK && started && tck_stats(t->client, &s) == TCK_OK) {
        journal("held", ",\"step\":%" PRIu64 ",\"ms\":%.3f", t->step, (double)s.stall_ns_last / 1e6);
    }
    return status;
}

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void compute(struct trainer *t)
{
    uint64_t begin = now_us();
    nanosleep(
        &(struct timespec){.tv_sec = (time_t)(t->o.step_ms / 1000), .tv_nsec = (long)(t->o.step_ms % 1000) * 1000000},
        NULL);
    uint64_t late = now_us() - begin - t->o.step_ms * 1000;
    t->late_max_us = late > t->late_max_us ? late : t->late_max_us;
}

static int one_step(struct trainer *t)
{
    int started = 0;
    t->step++;
    t->launch = t->o.launch;
    meet(t);
    fill(&t->o, t->params, params_seed(t, t->step));
    fill(&t->o, t->moments, moments_seed(t, t->step));
    if (save(t, &started) != TCK_OK) {
        return fail(t, "save");
    }
    if (t->o.eager) {
        fill(&t->o, t->moments, ~moments_seed(t, t->step));
    }
    if (started && t->o.wait_commit) {
        if (tck_fence(t->client) != TCK_OK) {
            return fail(t, "fence");
        }
        tck_status_t status = tck_wait(t->client, t->step, TCK_STAGE_COMMITTED, 60000);
        printf("%s %" PRIu64 "\n", status == TCK_OK ? "COMMITTED" : tck_strerror(status), t->step);
        if (status != TCK_OK) {
            printf("WHY %s\n", tck_errmsg(t->client));
        }
    }
    compute(t);
    if (fence(t, started) != TCK_OK) {
        return fail(t, "fence");
    }
    if (t->o.eager) {
        fill(&t->o, t->moments, moments_seed(t, t->step));
    }
    look(t);
    return 0;
}

static int train(struct trainer *t)
{
    int status = 0;
    while (status == 0 && t->step < t->o.steps) {
        status = one_step(t);
        printf("STEP %" PRIu64 "\n", t->step);
    }
    if (status == 0 && tck_fence(t->client) != TCK_OK) {
        status = fail(t, "fence");
    }
    if (status == 0 && t->o.wait_drained) {
        tck_status_t waited = tck_wait(t->client, t->step, TCK_STAGE_DRAINED, 60000);
        printf("%s %" PRIu64 "\n", waited == TCK_OK ? "DRAINED" : tck_strerror(waited), t->step);
    }
    if (status == 0 && t->o.save_last) {
        struct origin origin = {t->step, t->launch};
        tck_status_t saved = tck_set_blob(t->client, "step", &origin, sizeof(origin));
        saved = saved == TCK_OK ? tck_save_last(t->client, t->step, (int)t->o.last_ms) : saved;
        printf("%s %" PRIu64 "\n", saved == TCK_OK ? "LAST" : tck_strerror(saved), t->step);
        status = saved == TCK_OK ? 0 : fail(t, "save last");
    }
    tck_stats_t s = {.struct_size = sizeof(s)};
    if (tck_stats(t->client, &s) == TCK_OK) {
        printf("STATS started=%" PRIu64 " copied=%" PRIu64 " skipped=%" PRIu64 " committed=%" PRIu64
               " published=%" PRIu64 " stall_max_us=%" PRIu64 " "
               "late_max_us=%" PRIu64 "\n",
               s.saves_started, s.saves_copied, s.saves_skipped, s.committed_step, s.published_step,
               s.stall_ns_max / 1000, t->late_max_us);
    }
    return status;
}

/* An option sets the member at `at`: a text, a number, or, without argument, a switch. */
struct option_to {
    const char *name;
    size_t at;
    enum { TEXT, NUMBER, SWITCH } type;
};
#define TO(name, member, type)                       \
    {                                                \
        name, offsetof(struct options, member), type \
    }
static const struct option_to options[] = {TO("config", config, TEXT),
                                           TO("json", json, TEXT),
                                           TO("oob", oob, TEXT),
                                           TO("journal", journal, TEXT),
                                           TO("rank", rank, NUMBER),
                                           TO("world", world, NUMBER),
                                           TO("twins", twins, NUMBER),
                                           TO("launch", launch, NUMBER),
                                           TO("steps", steps, NUMBER),
                                           TO("count", count, NUMBER),
                                           TO("changes", changes, NUMBER),
                                           TO("step-ms", step_ms, NUMBER),
                                           TO("hold-seal", hold_seal, NUMBER),
                                           TO("spoil-seal", spoil_seal, NUMBER),
                                           TO("freeze-file", freeze_file, TEXT),
                                           TO("hold-file", hold_file, TEXT),
                                           TO("hold-meet", hold_meet, NUMBER),
                                           TO("restore-step", restore_step, NUMBER),
                                           TO("back-to", back_to, NUMBER),
                                           TO("wait-commit", wait_commit, SWITCH),
                                           TO("wait-drained", wait_drained, SWITCH),
                                           TO("save-last", save_last, SWITCH),
                                           TO("last-ms", last_ms, NUMBER),
                                           TO("no-restore", no_restore, SWITCH),
                                           TO("lockstep", lockstep, SWITCH),
                                           TO("eager", eager, SWITCH),
                                           TO("done", done, SWITCH)};
#define OPTIONS (sizeof(options) / sizeof(*options))

static void set(struct options *o, const struct option_to *to, const char *value)
{
    void *member = (char *)o + to->at;
    if (to->type == TEXT) {
        *(const char **)member = value;
    } else if (to->type == NUMBER) {
        *(uint64_t *)member = strtoull(value, NULL, 10);
    } else {
        *(int *)member = 1;
    }
}

static int parse(int argc, char **argv, struct options *o)
{
    struct option list[OPTIONS + 1] = {{0}};
    int which;
    for (size_t i = 0; i < OPTIONS; i++) {
        list[i].name = options[i].name;
        list[i].has_arg = options[i].type == SWITCH ? no_argument : required_argument;
    }
    *o = (struct options){
        .world = 1, .twins = 1, .steps = 10, .count = 1 << 16, .restore_step = TCK_NEWEST, .last_ms = 60000};
    for (int c; (c = getopt_long(argc, argv, "", list, &which)) != -1;) {
        if (c != 0) {
            return 2;
        }
        set(o, &options[which], optarg);
    }
    return o->twins == 0 || o->rank >= o->world ? 2 : 0;
}

int main(int argc, char **argv)
{
    struct trainer t = {0};
    if (parse(argc, argv, &t.o) != 0) {
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    t.connectivity = (struct connectivity){.dir = t.o.oob, .rank = (int)t.o.rank, .world = (int)t.o.world};
    t.params = calloc(t.o.count, sizeof(*t.params));
    t.moments = calloc(t.o.count, sizeof(*t.moments));
    if (t.params == NULL || t.moments == NULL || journal_open(t.o.journal, (int)t.o.rank, t.o.launch) != 0) {
        return 2;
    }
    if (t.o.lockstep && open_steps(&t) != 0) {
        return 2;
    }
    hold_seal(t.o.hold_file != NULL ? t.o.hold_seal : 0, t.o.hold_file);
    spoil_seal(t.o.spoil_seal);
    freeze_in_copy(t.o.freeze_file);
    journal("begin", ",\"pid\":%d", (int)getpid());
    int status = setup(&t);
    if (status == 0 && !t.o.no_restore) {
        status = restore(&t);
    }
    if (status == 0) {
        status = train(&t);
    }
    if (status == 0 && t.o.back_to != 0) {
        t.o.restore_step = t.o.back_to;
        t.o.steps = t.o.back_to + 4;
        status = restore(&t);
        status = status == 0 ? train(&t) : status;
    }
    journal("end", ",\"status\":%d,\"step\":%" PRIu64, status, t.step);
    if (t.client != NULL) {
        tck_detach(t.client, (status == 0 || t.o.save_last) && t.o.done);
    }
    free(t.params);
    free(t.moments);
    printf("EXIT %d\n", status);
    return status;
}
