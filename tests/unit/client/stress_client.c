/* SPDX-License-Identifier: Apache-2.0
 * A plain program, so that it also runs under ThreadSanitizer: saves at every step with several copy threads while the
 * agent is killed and restarted and another thread confirms snapshots; at the end, terms are begun and abandoned. */
#include "fake_agent.h"
#include "tierckpt.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STEPS    300
#define WEIGHTS  (3u << 20)
#define RESTORES 20

static struct fake_agent agent;
static char runtime_dir[] = "/tmp/tck-stress-XXXXXX";
static atomic_bool training = true, wording = true;

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "stress_client: %s\n", what);
        exit(1);
    }
}

static void check(tck_client_t *client, tck_status_t status)
{
    require(status == TCK_OK, tck_errmsg(client));
}

static void sleep_ms(long ms)
{
    struct timespec pause = {.tv_nsec = ms * 1000000};
    nanosleep(&pause, NULL);
}

static void *kill_and_start(void *arg)
{
    (void)arg;
    while (atomic_load(&training)) {
        sleep_ms(40);
        fake_agent_stop(&agent);
        sleep_ms(5);
        fake_agent_start(&agent, runtime_dir, "job", "node");
    }
    return NULL;
}

/* Confirms snapshots like the thread that compares version counters. */
static void *confirm_snapshots(void *arg)
{
    tck_client_t *client = arg;
    while (atomic_load(&wording)) {
        uint64_t step;
        if (tck_await_copied(client, 1, &step) == TCK_OK) {
            check(client, tck_confirm(client, step, NULL));
        }
    }
    return NULL;
}

static tck_client_t *attach(void)
{
    char config[512];
    tck_client_t *client = NULL;
    snprintf(config, sizeof(config),
             "{\"job\":\"job\",\"node\":\"node\",\"runtime_dir\":\"%s\",\"save_dir\":\"%s\",\"copy_threads\":3}",
             runtime_dir, runtime_dir);
    tck_attach_params_t params = {.struct_size = sizeof(params), .config_json = config, .rank = 0, .world_size = 1};
    tck_status_t status = tck_attach(&params, &client);
    require(status == TCK_OK, tck_errmsg(NULL));
    return client;
}

static void train(tck_client_t *client, uint8_t *weights, uint64_t *counter)
{
    tck_version_t version;
    for (uint64_t step = 1; step <= STEPS; step++) {
        check(client, tck_fence(client));
        memset(weights, (int)step, WEIGHTS);
        *counter = step;
        check(client, tck_snapshot(client, step, TCK_SAVE_MEMORY));
        tck_status_t status = tck_query(client, &version); /* from the other thread than the copy */
        require(status == TCK_OK || status == TCK_ERR_NOENT || status == TCK_ERR_UNREACHABLE, tck_errmsg(client));
    }
    check(client, tck_fence(client));
}

/* Once the agent keeps running, the last save must succeed. */
static void save_for_sure(tck_client_t *client)
{
    for (uint64_t step = STEPS + 1; step < STEPS + 1000; step++) {
        check(client, tck_snapshot(client, step, TCK_SAVE_MEMORY));
        check(client, tck_fence(client));
        if (tck_wait(client, step, TCK_STAGE_COPIED, 1000) == TCK_OK) {
            return;
        }
        sleep_ms(10);
    }
    require(false, "saves no longer get through");
}

int main(void)
{
    static uint8_t weights[WEIGHTS];
    uint64_t counter = 0;
    pthread_t thread;
    tck_record_t w = {.struct_size = sizeof(w), .key = "w", .dtype = TCK_U8, .ndim = 1, .addr = weights};
    tck_record_t c = {.struct_size = sizeof(c), .key = "c", .dtype = TCK_U64, .addr = &counter, .when = TCK_EAGER};
    w.global_shape[0] = w.local_shape[0] = WEIGHTS;
    require(mkdtemp(runtime_dir) != NULL, "mkdtemp");
    fake_agent_start(&agent, runtime_dir, "job", "node");
    tck_client_t *client = attach();
    check(client, tck_add_record(client, &w, NULL));
    check(client, tck_add_record(client, &c, NULL));
    check(client, tck_register(client));
    require(pthread_create(&thread, NULL, kill_and_start, NULL) == 0, "pthread_create");
    train(client, weights, &counter);
    atomic_store(&training, false);
    pthread_join(thread, NULL);
    check(client, tck_set_confirm(client, 1));
    require(pthread_create(&thread, NULL, confirm_snapshots, client) == 0, "pthread_create");
    for (int i = 0; i < RESTORES; i++) { /* each begins a term, for the one before has saved */
        save_for_sure(client);
        memset(weights, 0xff, sizeof(weights));
        check(client, tck_restore(client, TCK_NEWEST, NULL));
    }
    atomic_store(&wording, false);
    pthread_join(thread, NULL);
    require(counter == STEPS && weights[WEIGHTS - 1] == (uint8_t)STEPS, "restored something else");
    tck_detach(client, 1);
    fake_agent_free(&agent);
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", runtime_dir);
    return system(command) == 0 ? 0 : 1;
}
