/* SPDX-License-Identifier: Apache-2.0
 * A trainer that trains nothing: one process per rank, whose tensors at step s are a function of (tensor, s) alone, so
 * that what is restored can be checked to the bit without a reference copy. Ranks meet through files in a directory.
 *
 * Tensors: "params", the same on all ranks of a group of --twins ranks; "moments", this rank's alone; a blob with the
 * step. Prints one line per event; exits 3 if a restored byte is wrong. */
#include "tierckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OOB_WAIT_MS 120000

struct options {
    const char *config, *json, *oob;
    int rank, world;
    unsigned twins; /* ranks r with equal r / twins are twins */
    uint64_t steps; /* stop after this step */
    uint64_t count; /* elements per tensor */
    long step_ms;
    int wait_commit;  /* wait for the commit of each saved step */
    int wait_drained; /* wait for the newest storage save at the end */
    int no_restore;
    uint64_t restore_step;
    int done; /* detach says that the job is done */
};

struct trainer {
    struct options o;
    tck_client_t *client;
    uint64_t *params, *moments;
    uint64_t step;
    unsigned round;
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
    return mix(1000003ull * ((uint64_t)t->o.rank / t->o.twins + 1)) ^ mix(step);
}

static uint64_t moments_seed(const struct trainer *t, uint64_t step)
{
    return mix(7777777ull * ((uint64_t)t->o.rank + 1)) ^ mix(step);
}

static void fill(uint64_t *data, uint64_t count, uint64_t seed)
{
    for (uint64_t i = 0; i < count; i++) {
        data[i] = seed + i * 0x9e3779b97f4a7c15ull;
    }
}

static int check(const uint64_t *data, uint64_t count, uint64_t seed, const char *name)
{
    for (uint64_t i = 0; i < count; i++) {
        if (data[i] != seed + i * 0x9e3779b97f4a7c15ull) {
            printf("WRONG %s element %llu\n", name, (unsigned long long)i);
            return 1;
        }
    }
    return 0;
}

/* ---- ranks meet ---------------------------------------------------------------------------------------------- */

static int put_file(const char *path, const void *data, size_t len)
{
    char temp[600];
    snprintf(temp, sizeof temp, "%s.%d", path, (int)getpid());
    int fd = open(temp, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, len) != (ssize_t)len || close(fd) != 0) {
        return -1;
    }
    return rename(temp, path);
}

static int get_file(const char *path, void *data, size_t len)
{
    for (int waited = 0; waited < OOB_WAIT_MS; waited++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            ssize_t n = read(fd, data, len);
            close(fd);
            return n == (ssize_t)len ? 0 : -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return -1;
}

static int allgather(void *ctx, const void *in, void *out, size_t len)
{
    struct trainer *t = ctx;
    char path[512];
    unsigned round = t->round++;
    snprintf(path, sizeof path, "%s/%u.%d", t->o.oob, round, t->o.rank);
    if (put_file(path, in, len) != 0) {
        return -1;
    }
    for (int r = 0; r < t->o.world; r++) {
        snprintf(path, sizeof path, "%s/%u.%d", t->o.oob, round, r);
        if (get_file(path, (char *)out + (size_t)r * len, len) != 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- the job ------------------------------------------------------------------------------------------------- */

static int fail(const struct trainer *t, const char *what)
{
    printf("ERROR %s: %s\n", what, tck_errmsg(t->client));
    return 2;
}

static tck_status_t add(struct trainer *t, const char *key, uint64_t *data, const char *group)
{
    tck_record_t r = {
        .struct_size = sizeof r, .key = key, .dtype = TCK_U64, .ndim = 1, .addr = data, .replica_group = group};
    r.global_shape[0] = r.local_shape[0] = t->o.count;
    return tck_add_record(t->client, &r, NULL);
}

static int setup(struct trainer *t)
{
    char params[64], moments[64], group[64];
    snprintf(params, sizeof params, "params.%u", (unsigned)t->o.rank / t->o.twins);
    snprintf(group, sizeof group, "twins.%u", (unsigned)t->o.rank / t->o.twins);
    snprintf(moments, sizeof moments, "moments.%d", t->o.rank);
    tck_attach_params_t p = {.struct_size = sizeof p,
                             .config_file = t->o.config,
                             .config_json = t->o.json,
                             .rank = t->o.rank,
                             .world_size = t->o.world,
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

static int check_all(const struct trainer *t)
{
    uint64_t step = 0;
    size_t size = 0;
    if (tck_get_blob(t->client, "step", &step, sizeof step, &size) != TCK_OK || size != sizeof step ||
        step != t->step) {
        printf("WRONG blob: %llu\n", (unsigned long long)step);
        return 3;
    }
    return check(t->params, t->o.count, params_seed(t, t->step), "params") ||
                   check(t->moments, t->o.count, moments_seed(t, t->step), "moments")
               ? 3
               : 0;
}

static int restore(struct trainer *t)
{
    tck_restored_t r = {.struct_size = sizeof r};
    tck_status_t status = tck_restore(t->client, t->o.restore_step, &r);
    if (status == TCK_ERR_NOENT) {
        printf("FRESH\n");
        return 0;
    }
    if (status != TCK_OK) {
        return fail(t, "restore");
    }
    t->step = r.version.step;
    printf("RESTORED term=%llu step=%llu local=%llu twin=%llu peer=%llu storage=%llu newest=%llu seconds=%.3f\n",
           (unsigned long long)r.version.term, (unsigned long long)r.version.step, (unsigned long long)r.bytes_local,
           (unsigned long long)r.bytes_twin, (unsigned long long)r.bytes_peer, (unsigned long long)r.bytes_storage,
           (unsigned long long)r.newest_step, r.seconds);
    return check_all(t);
}

static int one_step(struct trainer *t)
{
    int started = 0;
    if (tck_fence(t->client) != TCK_OK) {
        return fail(t, "fence");
    }
    t->step++;
    fill(t->params, t->o.count, params_seed(t, t->step));
    fill(t->moments, t->o.count, moments_seed(t, t->step));
    if (tck_set_blob(t->client, "step", &t->step, sizeof t->step) != TCK_OK ||
        tck_save_if_needed(t->client, t->step, &started) != TCK_OK) {
        return fail(t, "save");
    }
    if (started && t->o.wait_commit) {
        if (tck_fence(t->client) != TCK_OK) {
            return fail(t, "fence");
        }
        tck_status_t status = tck_wait(t->client, t->step, TCK_STAGE_COMMITTED, 20000);
        printf("%s %llu\n", status == TCK_OK ? "COMMITTED" : tck_strerror(status), (unsigned long long)t->step);
    }
    nanosleep(&(struct timespec){.tv_sec = t->o.step_ms / 1000, .tv_nsec = t->o.step_ms % 1000 * 1000000}, NULL);
    return 0;
}

static int train(struct trainer *t)
{
    int status = 0;
    while (status == 0 && t->step < t->o.steps) {
        status = one_step(t);
        printf("STEP %llu\n", (unsigned long long)t->step);
    }
    if (status == 0 && tck_fence(t->client) != TCK_OK) {
        status = fail(t, "fence");
    }
    if (status == 0 && t->o.wait_drained) {
        tck_status_t waited = tck_wait(t->client, t->step, TCK_STAGE_DRAINED, 60000);
        printf("%s %llu\n", waited == TCK_OK ? "DRAINED" : tck_strerror(waited), (unsigned long long)t->step);
    }
    tck_stats_t s = {.struct_size = sizeof s};
    if (tck_stats(t->client, &s) == TCK_OK) {
        printf("STATS started=%llu copied=%llu skipped=%llu committed=%llu published=%llu stall_max_us=%llu\n",
               (unsigned long long)s.saves_started, (unsigned long long)s.saves_copied,
               (unsigned long long)s.saves_skipped, (unsigned long long)s.committed_step,
               (unsigned long long)s.published_step, (unsigned long long)s.stall_ns_max / 1000);
    }
    return status;
}

static int parse(int argc, char **argv, struct options *o)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"json", required_argument, NULL, 'j'},
                                            {"oob", required_argument, NULL, 'o'},
                                            {"rank", required_argument, NULL, 'r'},
                                            {"world", required_argument, NULL, 'w'},
                                            {"twins", required_argument, NULL, 't'},
                                            {"steps", required_argument, NULL, 's'},
                                            {"count", required_argument, NULL, 'n'},
                                            {"step-ms", required_argument, NULL, 'm'},
                                            {"wait-commit", no_argument, NULL, 'C'},
                                            {"wait-drained", no_argument, NULL, 'D'},
                                            {"no-restore", no_argument, NULL, 'N'},
                                            {"restore-step", required_argument, NULL, 'R'},
                                            {"done", no_argument, NULL, 'd'},
                                            {NULL, 0, NULL, 0}};
    *o = (struct options){.world = 1, .twins = 1, .steps = 10, .count = 1 << 16, .restore_step = TCK_NEWEST};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'c':
            o->config = optarg;
            break;
        case 'j':
            o->json = optarg;
            break;
        case 'o':
            o->oob = optarg;
            break;
        case 'r':
            o->rank = atoi(optarg);
            break;
        case 'w':
            o->world = atoi(optarg);
            break;
        case 't':
            o->twins = (unsigned)atoi(optarg);
            break;
        case 's':
            o->steps = strtoull(optarg, NULL, 10);
            break;
        case 'n':
            o->count = strtoull(optarg, NULL, 10);
            break;
        case 'm':
            o->step_ms = atol(optarg);
            break;
        case 'C':
            o->wait_commit = 1;
            break;
        case 'D':
            o->wait_drained = 1;
            break;
        case 'N':
            o->no_restore = 1;
            break;
        case 'R':
            o->restore_step = strtoull(optarg, NULL, 10);
            break;
        case 'd':
            o->done = 1;
            break;
        default:
            return 2;
        }
    }
    return o->twins == 0 ? 2 : 0;
}

int main(int argc, char **argv)
{
    struct trainer t = {0};
    if (parse(argc, argv, &t.o) != 0) {
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    t.params = calloc(t.o.count, sizeof *t.params);
    t.moments = calloc(t.o.count, sizeof *t.moments);
    if (!t.params || !t.moments) {
        return 2;
    }
    int status = setup(&t);
    if (status == 0 && !t.o.no_restore) {
        status = restore(&t);
    }
    if (status == 0) {
        status = train(&t);
    }
    if (t.client) {
        tck_detach(t.client, status == 0 && t.o.done);
    }
    free(t.params);
    free(t.moments);
    printf("EXIT %d\n", status);
    return status;
}
