/* SPDX-License-Identifier: Apache-2.0
 * A rank whose one tensor lies on a device, that of the stand-in for CUDA (tests/lib/cuda_standin.h); all ranks are
 * twins. At step --hold the copy to the slot does not come to its end before the file "go" is there. At step --spoil
 * the tensor has one wrong bit. */
#include "client/client.h"
#include "cuda_standin.h"
#include "meeting.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BYTES   (5u << 20)
#define WAIT_MS 60000

struct options {
    const char *json, *oob;
    int rank, world;
    unsigned long steps, hold, spoil;
};

static int parse(int argc, char **argv, struct options *o)
{
    static const struct option list[] = {
        {"json", required_argument, NULL, 'j'},  {"oob", required_argument, NULL, 'o'},
        {"rank", required_argument, NULL, 'r'},  {"world", required_argument, NULL, 'w'},
        {"steps", required_argument, NULL, 's'}, {"hold", required_argument, NULL, 'h'},
        {"spoil", required_argument, NULL, 'p'}, {0}};
    for (int c; (c = getopt_long(argc, argv, "", list, NULL)) != -1;) {
        unsigned long number = strtoul(optarg == NULL ? "" : optarg, NULL, 10);
        o->json = c == 'j' ? optarg : o->json;
        o->oob = c == 'o' ? optarg : o->oob;
        o->rank = c == 'r' ? (int)number : o->rank;
        o->world = c == 'w' ? (int)number : o->world;
        o->steps = c == 's' ? number : o->steps;
        o->hold = c == 'h' ? number : o->hold;
        o->spoil = c == 'p' ? number : o->spoil;
        if (c == '?') {
            return 2;
        }
    }
    return 0;
}

static int fail(const tck_client_t *client, const char *what)
{
    printf("ERROR %s: %s\n", what, tck_errmsg(client));
    return 2;
}

static int setup(const struct options *o, struct connectivity *connectivity, uint8_t *tensor, tck_client_t **out)
{
    tck_attach_params_t params = {.struct_size = sizeof(params),
                                  .config_json = o->json,
                                  .rank = o->rank,
                                  .world_size = o->world,
                                  .oob = {.allgather = meeting_allgather, .ctx = connectivity}};
    tck_record_t record = {.struct_size = sizeof(record),
                           .key = "w",
                           .dtype = TCK_U8,
                           .ndim = 1,
                           .global_shape = {BYTES},
                           .local_shape = {BYTES},
                           .addr = tensor,
                           .replica_group = "all",
                           .memory = TCK_CUDA};
    if (tck_attach(&params, out) != TCK_OK) {
        return fail(NULL, "attach");
    }
    (*out)->cuda_module = TCK_STANDIN;
    if (tck_add_record(*out, &record, NULL) != TCK_OK || tck_register(*out) != TCK_OK ||
        tck_set_stream(*out, 0, standin_stream(0)) != TCK_OK) {
        return fail(*out, "set up");
    }
    tck_status_t status = tck_restore(*out, TCK_NEWEST, NULL);
    return status == TCK_OK || status == TCK_ERR_NOENT ? 0 : fail(*out, "restore");
}

static void await_go(const struct options *o)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/go", o->oob);
    printf("HELD\n");
    for (int waited = 0; waited < WAIT_MS && access(path, F_OK) != 0; waited++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static int one_step(const struct options *o, tck_client_t *client, uint8_t *tensor, unsigned long step)
{
    memset(tensor, (int)(step * 7 % 251), BYTES);
    tensor[BYTES / 3] ^= step == o->spoil;
    standin_gate(step != o->hold);
    if (tck_snapshot(client, step, TCK_SAVE_MEMORY) != TCK_OK) {
        return fail(client, "save");
    }
    if (step == o->hold) {
        await_go(o);
        standin_gate(true);
    }
    if (tck_fence(client) != TCK_OK || tck_wait(client, step, TCK_STAGE_COMMITTED, WAIT_MS) != TCK_OK) {
        return fail(client, "commit");
    }
    printf("COMMITTED %lu\n", step);
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = {.world = 1, .steps = 1};
    if (parse(argc, argv, &o) != 0) {
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct connectivity connectivity = {.dir = o.oob, .rank = o.rank, .world = o.world};
    uint8_t *tensor = standin_alloc(0, BYTES);
    tck_client_t *client = NULL;
    standin_gate_from(BYTES / 2); /* not what brings the digests to the host */
    int status = setup(&o, &connectivity, tensor, &client);
    for (unsigned long step = 1; step <= o.steps && status == 0; step++) {
        status = one_step(&o, client, tensor, step);
    }
    tck_detach(client, 0); /* its agent is still asked */
    standin_free(tensor);
    standin_reset();
    printf("EXIT %d\n", status);
    return status;
}
