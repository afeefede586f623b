/* SPDX-License-Identifier: Apache-2.0
 * A trainer whose tensors are cut over a grid of ranks, so that it can come back with another one: --grid PXxPY, PX *
 * PY ranks. "wide" is cut in two dimensions, "rows" in the first alone, over all ranks; "all" is the same on each.
 * Their elements at a step are functions of their places, so that each is checked. A counter and a blob are each rank's
 * own. Prints one line per event; exits 3 if an element is wrong. */
#include "meeting.h"
#include "tierckpt.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEIGHT 97 /* divides by nothing */
#define WIDTH  1031
#define WAIT   60000

struct tensor {
    const char *key, *group;
    uint64_t offset[2], shape[2];
    uint64_t *data;
};

struct job {
    const char *json, *oob;
    int rank, world, grid[2];
    uint64_t steps, restore_step;
    int to_storage, with_own;
    struct connectivity connectivity;
    tck_client_t *client;
    struct tensor tensors[3];
    uint64_t own; /* this rank's */
    uint64_t step;
};

static uint64_t value(const struct tensor *t, uint64_t step, uint64_t i)
{
    uint64_t row = t->offset[0] + i / t->shape[1], col = t->offset[1] + i % t->shape[1];
    return (step * HEIGHT + row) * WIDTH + col + (uint64_t)t->key[0] * 1000000007u;
}

static int fail(const struct job *j, const char *what)
{
    printf("ERROR %s: %s\n", what, tck_errmsg(j->client));
    return 2;
}

/* Part k of n of a length. */
static void cut(uint64_t length, int n, int k, uint64_t *offset, uint64_t *size)
{
    uint64_t part = (length + (uint64_t)n - 1) / (uint64_t)n, begin = part * (uint64_t)k;
    *offset = begin < length ? begin : length;
    *size = length - *offset < part ? length - *offset : part;
}

static void divide(struct job *j)
{
    struct tensor *wide = &j->tensors[0], *rows = &j->tensors[1], *all = &j->tensors[2];
    *wide = (struct tensor){.key = "wide"};
    *rows = (struct tensor){.key = "rows", .shape = {0, WIDTH}};
    *all = (struct tensor){.key = "all", .group = j->world > 1 ? "everybody" : NULL, .shape = {HEIGHT, WIDTH}};
    cut(HEIGHT, j->grid[0], j->rank / j->grid[1], &wide->offset[0], &wide->shape[0]);
    cut(WIDTH, j->grid[1], j->rank % j->grid[1], &wide->offset[1], &wide->shape[1]);
    cut(HEIGHT, j->world, j->rank, &rows->offset[0], &rows->shape[0]);
}

static int add(const struct job *j, struct tensor *t)
{
    tck_record_t r = {.struct_size = sizeof(r), .key = t->key, .dtype = TCK_U64, .ndim = 2, .replica_group = t->group};
    t->data = calloc(t->shape[0] * t->shape[1] + 1, sizeof(*t->data));
    r.global_shape[0] = HEIGHT;
    r.global_shape[1] = WIDTH;
    memcpy(r.offset, t->offset, sizeof(t->offset));
    memcpy(r.local_shape, t->shape, sizeof(t->shape));
    r.addr = t->data;
    return tck_add_record(j->client, &r, NULL) == TCK_OK ? 0 : fail(j, "add");
}

static int add_own(struct job *j)
{
    char key[32];
    tck_record_t r = {.struct_size = sizeof(r), .key = key, .dtype = TCK_U64, .addr = &j->own, .when = TCK_EAGER};
    snprintf(key, sizeof(key), "rank%d/own", j->rank);
    if (tck_add_record(j->client, &r, NULL) != TCK_OK || tck_add_blob(j->client, "step", 64, NULL) != TCK_OK ||
        (j->with_own && (tck_set_reshard(j->client, key, TCK_RESHARD_LEAVE) != TCK_OK ||
                         tck_set_reshard(j->client, "step", TCK_RESHARD_ANY) != TCK_OK))) {
        return fail(j, "add");
    }
    return 0;
}

static int setup(struct job *j)
{
    tck_attach_params_t p = {.struct_size = sizeof(p),
                             .config_json = j->json,
                             .rank = j->rank,
                             .world_size = j->world,
                             .oob = {.allgather = meeting_allgather, .ctx = &j->connectivity}};
    j->connectivity = (struct connectivity){.dir = j->oob, .rank = j->rank, .world = j->world};
    if (tck_attach(&p, &j->client) != TCK_OK) {
        return fail(j, "attach");
    }
    divide(j);
    for (int i = 0; i < 3; i++) {
        if (add(j, &j->tensors[i]) != 0) {
            return 2;
        }
    }
    if (add_own(j) != 0) {
        return 2;
    }
    return tck_register(j->client) == TCK_OK ? 0 : fail(j, "register");
}

static int check(const struct job *j)
{
    uint64_t step = 0;
    size_t size = 0;
    for (int i = 0; i < 3; i++) {
        const struct tensor *t = &j->tensors[i];
        for (uint64_t k = 0; k < t->shape[0] * t->shape[1]; k++) {
            if (t->data[k] != value(t, j->step, k)) {
                printf("WRONG %s element %" PRIu64 "\n", t->key, k);
                return 3;
            }
        }
    }
    if (tck_get_blob(j->client, "step", &step, sizeof(step), &size) != TCK_OK || step != j->step) {
        printf("WRONG blob: %" PRIu64 "\n", step);
        return 3;
    }
    return 0;
}

static int untouched(const struct job *j)
{
    for (int i = 0; i < 3; i++) {
        for (uint64_t k = 0; k < j->tensors[i].shape[0] * j->tensors[i].shape[1]; k++) {
            if (j->tensors[i].data[k] != 0) {
                printf("WRONG a failed restore has written %s\n", j->tensors[i].key);
                return 3;
            }
        }
    }
    return 2;
}

static int restore(struct job *j)
{
    tck_restored_t r = {.struct_size = sizeof(r)};
    tck_status_t status = tck_restore(j->client, j->restore_step, &r);
    if (status == TCK_ERR_NOENT) {
        printf("FRESH\n");
        return 0;
    }
    if (status != TCK_OK) {
        fail(j, "restore");
        return untouched(j);
    }
    j->step = r.version.step;
    printf("RESTORED term=%" PRIu64 " step=%" PRIu64 " resharded=%d from=%u left=%u storage=%" PRIu64 " own=%" PRIu64
           "\n",
           r.version.term, r.version.step, r.resharded, r.saved_world_size, r.left_count, r.bytes_storage, j->own);
    return check(j);
}

static int one_step(struct job *j)
{
    j->step++;
    j->own = j->step * 100 + (uint64_t)j->rank;
    for (int i = 0; i < 3; i++) {
        for (uint64_t k = 0; k < j->tensors[i].shape[0] * j->tensors[i].shape[1]; k++) {
            j->tensors[i].data[k] = value(&j->tensors[i], j->step, k);
        }
    }
    tck_save_flags_t flags = j->to_storage ? TCK_SAVE_STORAGE : TCK_SAVE_MEMORY;
    if (tck_set_blob(j->client, "step", &j->step, sizeof(j->step)) != TCK_OK ||
        tck_snapshot(j->client, j->step, flags) != TCK_OK || tck_fence(j->client) != TCK_OK ||
        tck_wait(j->client, j->step, j->to_storage ? TCK_STAGE_DRAINED : TCK_STAGE_COMMITTED, WAIT) != TCK_OK) {
        return fail(j, "save");
    }
    printf("SAVED %" PRIu64 "\n", j->step);
    return 0;
}

static int parse(int argc, char **argv, struct job *j)
{
    const struct option options[] = {
        {"json", required_argument, NULL, 'j'},     {"oob", required_argument, NULL, 'o'},
        {"rank", required_argument, NULL, 'r'},     {"world", required_argument, NULL, 'w'},
        {"grid", required_argument, NULL, 'g'},     {"steps", required_argument, NULL, 's'},
        {"restore", required_argument, NULL, 't'},  {"storage", no_argument, &j->to_storage, 1},
        {"with-own", no_argument, &j->with_own, 1}, {NULL, 0, NULL, 0}};
    j->restore_step = TCK_NEWEST;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'j':
            j->json = optarg;
            break;
        case 'o':
            j->oob = optarg;
            break;
        case 'r':
            j->rank = atoi(optarg);
            break;
        case 'w':
            j->world = atoi(optarg);
            break;
        case 's':
            j->steps = strtoull(optarg, NULL, 10);
            break;
        case 't':
            j->restore_step = strtoull(optarg, NULL, 10);
            break;
        case 'g':
            if (sscanf(optarg, "%dx%d", &j->grid[0], &j->grid[1]) != 2) {
                return 2;
            }
            break;
        case 0:
            break;
        default:
            return 2;
        }
    }
    return j->json != NULL && j->oob != NULL && j->grid[0] * j->grid[1] == j->world ? 0 : 2;
}

int main(int argc, char **argv)
{
    struct job j = {.grid = {1, 1}, .own = 7};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (parse(argc, argv, &j) != 0) {
        return 2;
    }
    int status = setup(&j);
    if (status == 0) {
        status = restore(&j);
    }
    for (uint64_t end = j.step + j.steps; status == 0 && j.step < end;) {
        status = one_step(&j);
    }
    if (j.client != NULL) {
        tck_detach(j.client, 0);
    }
    for (int i = 0; i < 3; i++) {
        free(j.tensors[i].data);
    }
    printf("EXIT %d\n", status);
    return status;
}
