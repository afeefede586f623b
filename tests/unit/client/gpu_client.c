/* SPDX-License-Identifier: Apache-2.0
 * Records on a real device, with the module and a fake agent: cases that the stand-in cannot cover. Skipped without a
 * CUDA device. A plain program, because the CUDA runtime does not survive a fork, and so that compute-sanitizer can run
 * it.
 */
#include "base/digest.h"
#include "client/client.h"
#include "client/cuda.h"
#include "fake_agent.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SKIPPED     77
#define PATIENCE_MS 60000
#define TENSORS_MAX 6000
#define BIG         (256u << 20)

struct tensor {
    uint64_t bytes, shift; /* the address is this odd */
    bool eager;
    uint8_t *block, *addr, *expected; /* the last two: of what it holds, on the device and the host */
    uint32_t number;
};

struct trainer {
    struct fake_agent agent;
    char dir[32];
    tck_client_t *client;
    void *stream;
    struct tensor *tensors;
    uint32_t count;
};

static const struct cuda_calls *calls;
static bool refuse_pins;
static unsigned pins;             /* that the driver has granted */
static struct cuda_calls altered; /* pins as refuse_pins says */

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "FAILED: %s\n", what);
        exit(1);
    }
}

static void done(int rc)
{
    require(rc == 0, rc == 0 ? "" : calls->error_text(rc));
}

static void ok(const struct trainer *t, tck_status_t status)
{
    require(status == TCK_OK, tck_errmsg(t->client));
}

static int pin_or_not(void *base, uint64_t bytes)
{
    int rc = refuse_pins ? 2 : calls->pin(base, bytes);

    pins += rc == 0;
    return rc;
}

/* ---- a trainer ----------------------------------------------------------------------------------------------- */

static void attach_with(struct trainer *t, const char *digest)
{
    char config[512];
    tck_attach_params_t params = {.struct_size = sizeof(params), .config_json = config, .world_size = 1};
    struct device *cuda = NULL;
    struct error err;

    snprintf(config, sizeof(config),
             "{\"job\":\"job\",\"node\":\"node\",\"runtime_dir\":\"%s\",\"save_dir\":\"%s\",\"block_time_ms\":10000,"
             "\"digest\":\"%s\"}",
             t->dir, t->dir, digest);
    require(tck_attach(&params, &t->client) == TCK_OK, tck_errmsg(NULL));
    require(cuda_new_with(&altered, &cuda, &err) == TCK_OK, err.text);
    devices_add(&t->client->devices, cuda);
    done(calls->stream_new(&t->stream));
}

static void attach(struct trainer *t)
{
    attach_with(t, "host");
}

static void open_trainer(struct trainer *t)
{
    *t = (struct trainer){.dir = "/tmp/tck-gpu-XXXXXX"};
    require(mkdtemp(t->dir) != NULL, "mkdtemp");
    t->tensors = calloc(TENSORS_MAX, sizeof(*t->tensors));
    require(t->tensors != NULL, "no memory");
    fake_agent_start(&t->agent, t->dir, "job", "node");
}

static void close_trainer(struct trainer *t)
{
    char command[64];

    tck_detach(t->client, 1);
    for (uint32_t i = 0; i < t->count; i++) {
        calls->device_free(t->tensors[i].block);
        free(t->tensors[i].expected);
    }
    calls->stream_free(t->stream);
    free(t->tensors);
    fake_agent_free(&t->agent);
    snprintf(command, sizeof(command), "rm -rf '%s'", t->dir);
    require(system(command) == 0, command);
}

static void add(struct trainer *t, uint64_t bytes, uint64_t shift, bool eager)
{
    struct tensor *tensor = &t->tensors[t->count];
    char key[16];

    *tensor = (struct tensor){.bytes = bytes, .shift = shift, .eager = eager, .expected = malloc(bytes + 1)};
    require(tensor->expected != NULL, "no memory");
    done(calls->device_alloc((void **)&tensor->block, bytes + shift + 1));
    tensor->addr = tensor->block + shift;
    snprintf(key, sizeof(key), "t%05u", t->count++);
    tck_record_t record = {.struct_size = sizeof(record),
                           .key = key,
                           .dtype = TCK_U8,
                           .ndim = 1,
                           .global_shape = {bytes},
                           .local_shape = {bytes},
                           .addr = tensor->addr,
                           .when = eager ? TCK_EAGER : TCK_LAZY,
                           .memory = TCK_CUDA};
    ok(t, tck_add_record(t->client, &record, &tensor->number));
}

static void add_all_sizes(struct trainer *t)
{
    static const uint64_t sizes[] = {50000001, 262144, 262143, 131077, 65537, 65536, 4096, 333, 64, 63, 17, 3, 1, 0};

    for (uint64_t shift = 0; shift < 18; shift++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            if (sizes[i] < 1000000 || shift % 7 == 1) {
                add(t, sizes[i], shift, i % 5 == 2);
            }
        }
    }
}

static void begin(struct trainer *t)
{
    ok(t, tck_register(t->client));
    ok(t, tck_set_stream(t->client, 0, t->stream));
}

static void expect(struct trainer *t, uint64_t value)
{
    for (uint32_t i = 0; i < t->count; i++) {
        for (uint64_t b = 0; b < t->tensors[i].bytes; b++) {
            t->tensors[i].expected[b] = (uint8_t)(value * 7 + b % 253 + i);
        }
    }
}

/* On the training's stream, of which nothing is waited for but the copy's own reading of the host memory. */
static void fill(struct trainer *t, uint64_t value)
{
    expect(t, value);
    for (uint32_t i = 0; i < t->count; i++) {
        const struct tensor *tensor = &t->tensors[i];

        if (tensor->bytes > 0) {
            done(calls->copy(tensor->addr, tensor->expected, tensor->bytes, t->stream));
        }
    }
}

static void zero_all(struct trainer *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->tensors[i].bytes > 0) {
            done(calls->zero(t->tensors[i].addr, t->tensors[i].bytes, t->stream));
        }
    }
}

static bool image_is_expected(struct trainer *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        const struct record *record = &t->client->layout.records[t->tensors[i].number];
        const uint8_t *image = fake_agent_image(&t->agent, record->shard) + record->image_offset;

        if (memcmp(image, t->tensors[i].expected, t->tensors[i].bytes) != 0) {
            return false;
        }
    }
    return true;
}

static bool device_is_expected(struct trainer *t)
{
    bool same = true;

    for (uint32_t i = 0; i < t->count && same; i++) {
        struct tensor *tensor = &t->tensors[i];
        uint8_t *bytes = malloc(tensor->bytes + 1);

        require(bytes != NULL, "no memory");
        if (tensor->bytes > 0) {
            done(calls->copy(bytes, tensor->addr, tensor->bytes, t->stream));
        }
        done(calls->stream_sync(t->stream));
        same = memcmp(bytes, tensor->expected, tensor->bytes) == 0;
        free(bytes);
    }
    return same;
}

static void save(struct trainer *t, uint64_t step)
{
    ok(t, tck_snapshot(t->client, step, TCK_SAVE_MEMORY));
    ok(t, tck_fence(t->client));
}

static void settled(struct trainer *t, uint64_t step)
{
    ok(t, tck_wait(t->client, step, TCK_STAGE_COMMITTED, PATIENCE_MS));
}

static void save_new(struct trainer *t, uint64_t step)
{
    fill(t, step);
    save(t, step);
    settled(t, step);
}

/* ---- what is shown ------------------------------------------------------------------------------------------- */

static void saves_and_restores_bit_for_bit(void)
{
    struct trainer t;

    open_trainer(&t);
    attach(&t);
    add_all_sizes(&t);
    begin(&t);
    for (uint64_t step = 1; step <= 4; step++) {
        save_new(&t, step);
        require(image_is_expected(&t), "an image is not what lay on the device");
    }
    zero_all(&t);
    ok(&t, tck_restore(t.client, TCK_NEWEST, NULL));
    require(device_is_expected(&t), "a restore did not bring everything back");
    close_trainer(&t);
}

static void pinned_slots(void)
{
    refuse_pins = false;
    saves_and_restores_bit_for_bit();
    require(pins > 0, "the driver does not pin the agent's memory");
}

static void slots_that_are_not_pinned(void)
{
    refuse_pins = true;
    saves_and_restores_bit_for_bit();
    refuse_pins = false;
}

/* By the device, of what lies there, and by the host, of what has arrived. */
static void expect_root(struct trainer *t)
{
    const struct fake_shard *shard = &t->agent.shards[0];
    struct sealed sealed = seal_read(&shard->seals[shard->sealed_slot]);
    uint32_t *crcs = calloc(chunk_count(shard->bytes), sizeof(*crcs));

    require(crcs != NULL && t->agent.shard_count == 1, "one shard");
    require(sealed.has_root, "the seal has no root");
    require(hash128_is(sealed.root, digest_image(fake_agent_image(&t->agent, 0), shard->bytes, crcs)),
            "the device's digests are not the host's");
    free(crcs);
}

static void digests_made_on_the_device(void)
{
    struct trainer t;

    open_trainer(&t);
    attach_with(&t, "device");
    add_all_sizes(&t);
    begin(&t);
    for (uint64_t step = 1; step <= 4; step++) {
        save_new(&t, step);
        expect_root(&t);
    }
    close_trainer(&t);
}

static void several_in_a_row_without_waiting(void)
{
    struct trainer t;

    open_trainer(&t);
    attach(&t);
    add(&t, 30000001, 3, false);
    add(&t, 5000, 0, false);
    add(&t, 7000, 0, true);
    begin(&t);
    for (uint64_t step = 1; step <= 20; step++) {
        fill(&t, step);
        save(&t, step);
    }
    settled(&t, 20);
    require(image_is_expected(&t), "the last of several snapshots is not what it should be");
    close_trainer(&t);
}

static void many_small(void)
{
    struct trainer t;

    open_trainer(&t);
    attach(&t);
    for (int i = 0; i < TENSORS_MAX; i++) {
        add(&t, 4096, 0, false);
    }
    begin(&t);
    fill(&t, 3);
    save(&t, 1);
    settled(&t, 1);
    require(image_is_expected(&t), "an image of many small tensors is not what lay on the device");
    close_trainer(&t);
}

/* The next step overwrites everything immediately after the save. */
static bool survives_a_step(bool fenced)
{
    struct trainer t;
    bool whole;

    open_trainer(&t);
    attach(&t);
    add(&t, BIG, 0, false);
    begin(&t);
    fill(&t, 1);
    done(calls->stream_sync(t.stream));
    ok(&t, tck_snapshot(t.client, 1, TCK_SAVE_MEMORY));
    if (fenced) {
        ok(&t, tck_fence(t.client));
    }
    zero_all(&t);
    done(calls->stream_sync(t.stream));
    settled(&t, 1);
    whole = image_is_expected(&t);
    ok(&t, tck_fence(t.client));
    close_trainer(&t);
    return whole;
}

static void fence_holds_the_next_step(void)
{
    require(survives_a_step(true), "a step behind the fence has overtaken the copy");
}

static void without_it_the_next_step_is_seen(void)
{
    require(!survives_a_step(false), "without the fence nothing was overtaken: the test above shows nothing");
}

/* ---- graphs -------------------------------------------------------------------------------------------------- */

#define CAPTURE_GLOBAL 0 /* CU_STREAM_CAPTURE_MODE_GLOBAL: no other thread may do what could spoil it */

/* Of the driver, which knows the runtime's streams; none where the stand-in is tried out. */
static struct {
    int (*begin)(void *stream, int mode);
    int (*end)(void *stream, void **graph_out);
    int (*destroy)(void *graph);
} capture;

static bool find_capture(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);

    if (driver == NULL) {
        return false;
    }
    *(void **)&capture.begin = dlsym(driver, "cuStreamBeginCapture_v2");
    *(void **)&capture.end = dlsym(driver, "cuStreamEndCapture");
    *(void **)&capture.destroy = dlsym(driver, "cuGraphDestroy");
    require(capture.begin != NULL && capture.end != NULL && capture.destroy != NULL, "the driver knows of graphs");
    return true;
}

static void end_capture(void *stream)
{
    void *graph = NULL;

    require(capture.end(stream, &graph) == 0 && graph != NULL, "a save has spoiled a capture");
    (void)capture.destroy(graph);
}

static void open_small(struct trainer *t)
{
    open_trainer(t);
    attach(t);
    add(t, 3000001, 1, false);
    add(t, 5000, 0, false);
    add(t, 6000, 0, false);
    add(t, 7000, 0, true);
    begin(t);
    fill(t, 1);
    done(calls->stream_sync(t->stream));
}

static void a_save_in_a_capture_is_refused_and_leaves_it_whole(void)
{
    struct trainer t;

    open_small(&t);
    require(capture.begin(t.stream, CAPTURE_GLOBAL) == 0, "a capture begins");
    require(tck_snapshot(t.client, 1, TCK_SAVE_MEMORY) == TCK_ERR_INVAL, "a save in a capture is refused");
    require(strstr(tck_errmsg(t.client), "captured") != NULL, "the refusal names the capture");
    end_capture(t.stream);
    save(&t, 2);
    settled(&t, 2);
    require(image_is_expected(&t), "after a capture nothing is saved");
    close_trainer(&t);
}

static void a_capture_on_another_stream_survives_a_save(void)
{
    struct trainer t;
    void *other = NULL;

    open_small(&t);
    done(calls->stream_new(&other));
    require(capture.begin(other, CAPTURE_GLOBAL) == 0, "a capture begins");
    save(&t, 1);
    settled(&t, 1);
    end_capture(other);
    require(image_is_expected(&t), "beside a capture something else is saved");
    calls->stream_free(other);
    close_trainer(&t);
}

/* ---- killed -------------------------------------------------------------------------------------------------- */

static void train_until_killed(struct trainer *t)
{
    attach(t);
    add(t, BIG, 0, false);
    begin(t);
    for (uint64_t step = 1;; step++) {
        fill(t, step);
        save(t, step);
    }
}

/* The agent belongs to this process and has lost its trainer: it must be intact, and so must the sealed image. */
static void killed_in_mid_copy(void)
{
    struct trainer t;
    struct timespec pause = {.tv_nsec = 2000000};
    tck_restored_t restored = {.struct_size = sizeof(restored)};

    open_trainer(&t);
    pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        execl("/proc/self/exe", "gpu_client", "--train", t.dir, (char *)NULL);
        _exit(127);
    }
    while (atomic_load(&t.agent.begins) < 3 && waitpid(child, NULL, WNOHANG) == 0) {
        nanosleep(&pause, NULL);
    }
    nanosleep(&pause, NULL);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    require(atomic_load(&t.agent.begins) >= 3, "the child did not come to its third save");
    attach(&t);
    add(&t, BIG, 0, false);
    begin(&t);
    ok(&t, tck_restore(t.client, TCK_NEWEST, &restored));
    expect(&t, restored.version.step);
    require(device_is_expected(&t), "what was sealed before a death in mid-copy does not come back");
    fill(&t, 99);
    save(&t, 1000);
    settled(&t, 1000);
    require(image_is_expected(&t), "after a death in mid-copy nothing is saved");
    close_trainer(&t);
}

/* ---- all ----------------------------------------------------------------------------------------------------- */

static int skip(const char *why)
{
    printf("skipped: no CUDA device (%s)\n", why);
    return SKIPPED;
}

static int load(const char *path)
{
    void *module = dlopen(path, RTLD_NOW);
    cuda_calls_fn *get = NULL;
    int count = 0, rc;

    require(module != NULL, "the module cannot be loaded");
    *(void **)&get = dlsym(module, CUDA_CALLS_SYMBOL);
    require(get != NULL, "the module has no table");
    calls = get();
    rc = calls->device_count(&count);
    return rc != 0 ? skip(calls->error_text(rc)) : count == 0 ? skip("none") : 0;
}

static void show(const char *name, void (*test)(void))
{
    test();
    printf("ok %s\n", name);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct cuda_place before;
    int rc = load(TCK_MODULE);

    if (rc != 0) {
        return rc;
    }
    altered = *calls;
    altered.pin = pin_or_not;
    done(calls->enter(0, &before));
    if (argc == 3 && strcmp(argv[1], "--train") == 0) {
        struct trainer t = {.tensors = calloc(TENSORS_MAX, sizeof(*t.tensors))};

        snprintf(t.dir, sizeof(t.dir), "%s", argv[2]);
        train_until_killed(&t);
    }
    show("pinned_slots", pinned_slots);
    show("slots_that_are_not_pinned", slots_that_are_not_pinned);
    show("digests_made_on_the_device", digests_made_on_the_device);
    show("several_in_a_row_without_waiting", several_in_a_row_without_waiting);
    show("many_small", many_small);
    show("fence_holds_the_next_step", fence_holds_the_next_step);
    show("without_it_the_next_step_is_seen", without_it_the_next_step_is_seen);
    if (find_capture()) {
        show("a_save_in_a_capture_is_refused_and_leaves_it_whole", a_save_in_a_capture_is_refused_and_leaves_it_whole);
        show("a_capture_on_another_stream_survives_a_save", a_capture_on_another_stream_survives_a_save);
    }
    show("killed_in_mid_copy", killed_in_mid_copy);
    calls->leave(&before);
    return 0;
}
