/* SPDX-License-Identifier: Apache-2.0
 * Trains nothing, but saves, dies and restores. Run it twice:
 *
 *     ./survivor /tmp/checkpoints      dies at step 25
 *     ./survivor /tmp/checkpoints      goes on at step 20, from the memory of the agent that outlived the first run */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <tierckpt.h>

#define WEIGHTS    (1 << 20)
#define LAST_STEP  50
#define SAFE_STEP  20
#define DEATH_STEP 25

static tck_client_t *client;

static void check(tck_status_t status, const char *what)
{
    if (status != TCK_OK) {
        fprintf(stderr, "%s: %s\n", what, tck_errmsg(client));
        exit(1);
    }
}

/* Names what is to be saved. It stays where it is until tck_detach. */
static void describe(float *weights, uint64_t *step)
{
    tck_record_t w = TCK_RECORD_INIT;
    tck_record_t s = TCK_RECORD_INIT;

    w.key = "weights";
    w.dtype = TCK_F32;
    w.ndim = 1;
    w.global_shape[0] = w.local_shape[0] = WEIGHTS;
    w.addr = weights;
    s.key = "step";
    s.dtype = TCK_U64;
    s.addr = step;
    s.when = TCK_EAGER; /* it changes right after the save */
    check(tck_add_record(client, &w, NULL), "add weights");
    check(tck_add_record(client, &s, NULL), "add step");
    check(tck_register(client), "register");
}

static void train(float *weights, uint64_t *step, int may_die)
{
    while (*step < LAST_STEP) {
        check(tck_fence(client), "fence"); /* the snapshot before is out of the weights */
        for (int i = 0; i < WEIGHTS; i++) {
            weights[i] += 1;
        }
        *step += 1;
        check(tck_save_if_needed(client, *step, NULL), "save");
        if (may_die && *step == DEATH_STEP) {
            check(tck_wait(client, SAFE_STEP, TCK_STAGE_COMMITTED, 10000), "wait for the commit");
            printf("dies at step %" PRIu64 "\n", *step);
            fflush(stdout);
            abort();
        }
    }
}

int main(int argc, char **argv)
{
    static float weights[WEIGHTS];
    uint64_t step = 0;
    char config[4096];
    tck_attach_params_t params = TCK_ATTACH_PARAMS_INIT;
    tck_status_t status;

    snprintf(config, sizeof(config), "{\"job\": \"survivor\", \"save_dir\": \"%s\", \"save_mem_interval\": 10}",
             argc > 1 ? argv[1] : "/tmp/tierckpt-survivor");
    params.config_json = config;
    params.world_size = 1;
    check(tck_attach(&params, &client), "attach");
    describe(weights, &step);

    status = tck_restore(client, TCK_NEWEST, NULL);
    if (status != TCK_ERR_NOENT) { /* nothing saved yet is not a failure */
        check(status, "restore");
        printf("goes on at step %" PRIu64 ", weights are %g\n", step, (double)weights[0]);
    }
    train(weights, &step, status == TCK_ERR_NOENT);
    check(tck_save_last(client, step, 60000), "save the last step"); /* to storage: memory goes with the job */
    printf("done at step %" PRIu64 ", weights are %g\n", step, (double)weights[0]);
    tck_detach(client, 1);
    return weights[0] == LAST_STEP ? 0 : 1;
}
