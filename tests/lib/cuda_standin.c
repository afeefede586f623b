/* SPDX-License-Identifier: Apache-2.0
 * See cuda_standin.h. One lock guards everything but the work itself. */
#include "cuda_standin.h"
#include "kernels_on_host.h"

#include "cuda/calls.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GARBAGE     0xdb
#define DAMAGE_FROM 4096

enum op_kind { OP_WORK, OP_COPY, OP_ZERO, OP_GATHER, OP_SCATTER, OP_DIGEST, OP_RECORD, OP_WAIT };

struct event {
    uint64_t recorded, passed; /* tickets */
};

struct op {
    struct op *next;
    enum op_kind kind;
    void *to;
    const void *from;
    uint64_t bytes;
    uint32_t count;
    struct event *event;
    uint64_t ticket;
    void (*work)(void *ctx);
};

struct stream {
    struct stream *next;
    int device;
    bool of_client, stop, busy;
    bool capturing, spoiled;
    const struct op *running;
    struct op *first, **last;
    pthread_t thread;
};

struct range {
    struct range *next;
    uint8_t *base;
    uint64_t bytes;
    int device; /* -1: pinned host memory */
    bool of_client, owned;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct stream *streams, *defaults[STANDIN_DEVICES];
static struct range *ranges;
static int broken[STANDIN_DEVICES];
static bool gate_open = true, pins_refused, damage;
static uint64_t gate_from;
static unsigned at_gate, copies_to_break;
static struct standin_counts counts;
static _Thread_local int current, inside;

static void fail(const char *what)
{
    fprintf(stderr, "cuda_standin: %s\n", what);
    abort();
}

#define MUST(condition) ((condition) ? (void)0 : fail(#condition))

/* ---- memory -------------------------------------------------------------------------------------------------- */

static struct range *range_of(const void *addr)
{
    for (struct range *range = ranges; range != NULL; range = range->next) {
        if ((const uint8_t *)addr >= range->base && (const uint8_t *)addr < range->base + range->bytes) {
            return range;
        }
    }
    return NULL;
}

static bool fits(const void *addr, uint64_t bytes)
{
    const struct range *range = range_of(addr);

    return range == NULL || (uint64_t)((const uint8_t *)addr - range->base) + bytes <= range->bytes;
}

static bool is_device_memory(const void *addr)
{
    const struct range *range = range_of(addr);

    return range != NULL && range->device >= 0;
}

static void add_range(void *base, uint64_t bytes, int device, bool of_client, bool owned)
{
    struct range *range = calloc(1, sizeof(*range));

    MUST(range != NULL);
    *range = (struct range){
        .next = ranges, .base = base, .bytes = bytes, .device = device, .of_client = of_client, .owned = owned};
    ranges = range;
}

static void note_bytes(const struct range *range, bool more)
{
    uint64_t *sum = range->device >= 0 ? &counts.device_bytes : &counts.host_bytes;

    if (range->of_client && range->owned) {
        *sum = more ? *sum + range->bytes : *sum - range->bytes;
    }
}

static bool uses(const struct op *op, const struct range *range, const struct event *event)
{
    return op != NULL && op->kind != OP_WORK &&
           (event != NULL ? op->event == event : range == range_of(op->to) || range == range_of(op->from));
}

/* Whether a stream of the client still has something to do with the memory or the event. */
static bool is_used(const struct range *range, const struct event *event)
{
    for (const struct stream *stream = streams; stream != NULL; stream = stream->next) {
        bool used = uses(stream->running, range, event);

        for (const struct op *op = stream->first; op != NULL && !used; op = op->next) {
            used = uses(op, range, event);
        }
        if (stream->of_client && used) {
            return true;
        }
    }
    return false;
}

static void remove_range(const void *base)
{
    for (struct range **at = &ranges; *at != NULL; at = &(*at)->next) {
        struct range *range = *at;

        if (range->base == base) {
            MUST(!is_used(range, NULL));
            *at = range->next;
            note_bytes(range, false);
            if (range->owned) {
                free(range->base);
            }
            free(range);
            return;
        }
    }
    fail("memory is given back that is not there");
}

static void *make_memory(uint64_t bytes, int device, bool of_client)
{
    uint8_t *base = malloc(bytes + 1);

    MUST(base != NULL);
    memset(base, GARBAGE, bytes + 1);
    pthread_mutex_lock(&lock);
    add_range(base, bytes + 1, device, of_client, true);
    note_bytes(ranges, true);
    pthread_mutex_unlock(&lock);
    return base;
}

/* ---- streams ------------------------------------------------------------------------------------------------- */

/* Half of it, then the gate. */
static void copy_in_halves(const struct stream *stream, const struct op *op)
{
    uint64_t half = op->bytes / 2;
    bool stops;

    memcpy(op->to, op->from, half);
    pthread_mutex_lock(&lock);
    stops = stream->of_client && op->bytes >= gate_from;
    at_gate += stops && !gate_open;
    pthread_cond_broadcast(&changed);
    while (stops && !gate_open) {
        pthread_cond_wait(&changed, &lock);
    }
    if (stream->of_client && copies_to_break > 0 && --copies_to_break == 0) {
        broken[stream->device] = STANDIN_BROKEN;
    }
    half = broken[stream->device] != 0 ? op->bytes : half;
    bool damaged = damage && stream->of_client && !is_device_memory(op->to) && op->bytes > DAMAGE_FROM;
    damage = damage && !damaged;
    pthread_mutex_unlock(&lock);
    memcpy((uint8_t *)op->to + half, (const uint8_t *)op->from + half, op->bytes - half);
    *(uint8_t *)op->to ^= damaged;
}

/* Without the lock. */
static void do_work(const struct stream *stream, const struct op *op)
{
    switch (op->kind) {
    case OP_WORK:
        op->work(op->to);
        break;
    case OP_COPY:
        copy_in_halves(stream, op);
        break;
    case OP_ZERO:
        memset(op->to, 0, op->bytes);
        break;
    case OP_GATHER:
        on_host_gather(op->from, op->count, op->to);
        break;
    case OP_SCATTER:
        on_host_scatter(op->from, op->count, op->to);
        break;
    case OP_DIGEST:
        on_host_digest_pieces(op->from, op->count, op->bytes, op->to);
        break;
    case OP_RECORD:
    case OP_WAIT:
        break;
    }
}

/* With the lock. A broken device takes no further work, but finishes what it had been given. */
static void run(struct stream *stream, const struct op *op)
{
    if (op->kind == OP_RECORD) {
        op->event->passed = op->ticket > op->event->passed ? op->ticket : op->event->passed;
    } else if (op->kind == OP_WAIT) {
        while (op->event->passed < op->ticket) {
            pthread_cond_wait(&changed, &lock);
        }
    } else if (broken[stream->device] == 0) {
        pthread_mutex_unlock(&lock);
        do_work(stream, op);
        pthread_mutex_lock(&lock);
    }
}

static void *stream_main(void *arg)
{
    struct stream *stream = arg;

    pthread_mutex_lock(&lock);
    while (!stream->stop || stream->first != NULL) {
        struct op *op = stream->first;

        if (op == NULL) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        stream->busy = true;
        stream->running = op;
        stream->first = op->next;
        stream->last = op->next == NULL ? &stream->first : stream->last;
        run(stream, op);
        stream->running = NULL;
        free(op);
        stream->busy = false;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static struct stream *make_stream(int device, bool of_client)
{
    struct stream *stream = calloc(1, sizeof(*stream));

    MUST(stream != NULL);
    *stream = (struct stream){.device = device, .of_client = of_client};
    stream->last = &stream->first;
    MUST(pthread_create(&stream->thread, NULL, stream_main, stream) == 0);
    pthread_mutex_lock(&lock);
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&lock);
    return stream;
}

static void end_stream(struct stream *stream)
{
    pthread_mutex_lock(&lock);
    stream->stop = true;
    for (struct stream **at = &streams; *at != NULL; at = &(*at)->next) {
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(stream->thread, NULL);
    free(stream);
}

/* NULL is the default stream of the device that is current. */
static struct stream *stream_of(void *handle)
{
    if (handle == NULL && defaults[current] == NULL) {
        defaults[current] = make_stream(current, false);
    }
    return handle == NULL ? defaults[current] : handle;
}

/* With the lock. */
static void append(struct stream *stream, const struct op *op)
{
    struct op *mine = malloc(sizeof(*mine));

    MUST(mine != NULL);
    *mine = *op;
    mine->next = NULL;
    if (op->kind == OP_RECORD) {
        mine->ticket = ++op->event->recorded;
    } else if (op->kind == OP_WAIT) {
        mine->ticket = op->event->recorded;
    }
    *stream->last = mine;
    stream->last = &mine->next;
    pthread_cond_broadcast(&changed);
}

static void drain(struct stream *stream)
{
    pthread_mutex_lock(&lock);
    while (stream->first != NULL || stream->busy) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- the calls ----------------------------------------------------------------------------------------------- */

/* What any of them does of its kind. */
static int submit(void *handle, const struct op *op)
{
    struct stream *stream = stream_of(handle);
    int rc;

    MUST(inside > 0 && stream->device == current);
    pthread_mutex_lock(&lock);
    rc = broken[current];
    stream->spoiled = stream->spoiled || stream->capturing;
    if (rc == 0) {
        append(stream, op);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

static void note(unsigned *what, unsigned more)
{
    pthread_mutex_lock(&lock);
    *what += more;
    pthread_mutex_unlock(&lock);
}

static const char *call_error_text(int error)
{
    return error == STANDIN_BROKEN ? "an illegal memory access was encountered" : "out of memory";
}

static int call_device_count(int *count_out)
{
    *count_out = STANDIN_DEVICES;
    return 0;
}

static int call_enter(int device, struct cuda_place *before_out)
{
    *before_out = (struct cuda_place){.capture_mode = current};
    current = device;
    inside++;
    return 0;
}

static void call_leave(const struct cuda_place *before)
{
    MUST(inside > 0);
    inside--;
    current = before->capture_mode;
}

static int call_is_on(int device, const void *addr, bool *out)
{
    const struct range *range;

    pthread_mutex_lock(&lock);
    range = range_of(addr);
    *out = range != NULL && range->device == device;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int call_stream_new(void **stream_out)
{
    MUST(inside > 0);
    *stream_out = make_stream(current, true);
    note(&counts.streams, 1);
    return 0;
}

static void call_stream_free(void *stream)
{
    end_stream(stream);
    note(&counts.streams, -1u);
}

static int state_of(int device)
{
    int rc;

    pthread_mutex_lock(&lock);
    rc = broken[device];
    pthread_mutex_unlock(&lock);
    return rc;
}

static int call_stream_sync(void *stream)
{
    MUST(inside > 0);
    drain(stream_of(stream));
    return state_of(current);
}

static int call_stream_wait(void *stream, void *event)
{
    return submit(stream, &(struct op){.kind = OP_WAIT, .event = event});
}

static int call_stream_capturing(void *stream, bool *out)
{
    const struct stream *mine = stream_of(stream);

    pthread_mutex_lock(&lock);
    *out = mine->capturing;
    pthread_mutex_unlock(&lock);
    return state_of(current);
}

static int call_event_new(void **event_out)
{
    MUST(inside > 0);
    *event_out = calloc(1, sizeof(struct event));
    MUST(*event_out != NULL);
    note(&counts.events, 1);
    return 0;
}

static void call_event_free(void *event)
{
    pthread_mutex_lock(&lock);
    MUST(!is_used(NULL, event));
    pthread_mutex_unlock(&lock);
    free(event);
    note(&counts.events, -1u);
}

static int call_event_record(void *event, void *stream)
{
    return submit(stream, &(struct op){.kind = OP_RECORD, .event = event});
}

static int call_event_sync(void *handle)
{
    const struct event *event = handle;
    uint64_t ticket;

    pthread_mutex_lock(&lock);
    ticket = event->recorded;
    while (event->passed < ticket) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return state_of(current);
}

/* Of one that goes to ordinary memory CUDA would return when it is over: nothing may count on that here. */
static int call_copy(void *to, const void *from, uint64_t bytes, void *stream)
{
    bool good;

    pthread_mutex_lock(&lock);
    good = fits(to, bytes) && fits(from, bytes) && (is_device_memory(to) || is_device_memory(from));
    counts.copies++;
    pthread_mutex_unlock(&lock);
    MUST(good);
    return submit(stream, &(struct op){.kind = OP_COPY, .to = to, .from = from, .bytes = bytes});
}

static int call_zero(void *device_memory, uint64_t bytes, void *stream)
{
    return submit(stream, &(struct op){.kind = OP_ZERO, .to = device_memory, .bytes = bytes});
}

static int call_device_alloc(void **out, uint64_t bytes)
{
    MUST(inside > 0);
    *out = make_memory(bytes, current, true);
    return state_of(current);
}

static void free_memory(void *memory)
{
    pthread_mutex_lock(&lock);
    remove_range(memory);
    pthread_mutex_unlock(&lock);
}

static int call_host_alloc(void **out, uint64_t bytes)
{
    MUST(inside > 0);
    *out = make_memory(bytes, -1, true);
    return state_of(current);
}

static int call_pin(void *base, uint64_t bytes)
{
    int rc = STANDIN_REFUSED;

    MUST(inside > 0);
    pthread_mutex_lock(&lock);
    if (!pins_refused) {
        add_range(base, bytes, -1, true, false);
        counts.pins++;
        rc = 0;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

static void call_unpin(void *base)
{
    pthread_mutex_lock(&lock);
    remove_range(base);
    counts.unpins++;
    pthread_mutex_unlock(&lock);
}

static int call_gather(void *stream, const struct gather_piece *pieces, uint32_t count, void *packed)
{
    note(&counts.gathers, 1);
    return submit(stream, &(struct op){.kind = OP_GATHER, .to = packed, .from = pieces, .count = count});
}

static int call_scatter(void *stream, const struct gather_piece *pieces, uint32_t count, const void *packed)
{
    note(&counts.scatters, 1);
    return submit(stream,
                  &(struct op){.kind = OP_SCATTER, .to = (void *)(uintptr_t)packed, .from = pieces, .count = count});
}

/* The client makes them of pieces. */
static int call_digest(void *stream, const void *image, uint64_t bytes, uint32_t *crcs)
{
    drain(stream_of(stream));
    on_host_digest(image, bytes, crcs);
    return state_of(current);
}

static int call_digest_pieces(void *stream, const struct gather_piece *pieces, uint32_t count, uint64_t image_bytes,
                              uint32_t *crcs)
{
    return submit(stream,
                  &(struct op){.kind = OP_DIGEST, .to = crcs, .from = pieces, .count = count, .bytes = image_bytes});
}

static const struct cuda_calls calls = {
    .version = CUDA_CALLS_VERSION,
    .error_text = call_error_text,
    .device_count = call_device_count,
    .enter = call_enter,
    .leave = call_leave,
    .is_on = call_is_on,
    .stream_new = call_stream_new,
    .stream_free = call_stream_free,
    .stream_sync = call_stream_sync,
    .stream_wait = call_stream_wait,
    .stream_capturing = call_stream_capturing,
    .event_new = call_event_new,
    .event_free = call_event_free,
    .event_record = call_event_record,
    .event_sync = call_event_sync,
    .copy = call_copy,
    .zero = call_zero,
    .device_alloc = call_device_alloc,
    .device_free = free_memory,
    .host_alloc = call_host_alloc,
    .host_free = free_memory,
    .pin = call_pin,
    .unpin = call_unpin,
    .gather = call_gather,
    .scatter = call_scatter,
    .digest = call_digest,
    .digest_pieces = call_digest_pieces,
};

cuda_calls_fn tierckpt_cuda_calls;

const struct cuda_calls *tierckpt_cuda_calls(void)
{
    return &calls;
}

/* ---- the training -------------------------------------------------------------------------------------------- */

void *standin_alloc(int device, size_t bytes)
{
    return make_memory(bytes, device, false);
}

void standin_free(void *memory)
{
    free_memory(memory);
}

void *standin_stream(int device)
{
    return make_stream(device, false);
}

void standin_launch(void *handle, void (*work)(void *ctx), void *ctx)
{
    struct stream *stream = stream_of(handle);

    pthread_mutex_lock(&lock);
    append(stream, &(struct op){.kind = OP_WORK, .work = work, .to = ctx});
    pthread_mutex_unlock(&lock);
}

void standin_sync(void *stream)
{
    drain(stream_of(stream));
}

void standin_capture(void *handle)
{
    struct stream *stream = handle;

    pthread_mutex_lock(&lock);
    stream->capturing = true;
    stream->spoiled = false;
    pthread_mutex_unlock(&lock);
}

bool standin_capture_end(void *handle)
{
    struct stream *stream = handle;
    bool intact;

    pthread_mutex_lock(&lock);
    intact = stream->capturing && !stream->spoiled;
    stream->capturing = false;
    pthread_mutex_unlock(&lock);
    return intact;
}

void standin_make_current(int device)
{
    current = device;
}

int standin_current(void)
{
    return current;
}

void standin_gate(bool open)
{
    pthread_mutex_lock(&lock);
    gate_open = open;
    at_gate = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void standin_gate_from(size_t bytes)
{
    pthread_mutex_lock(&lock);
    gate_from = bytes;
    pthread_mutex_unlock(&lock);
}

void standin_await_at_gate(unsigned count)
{
    pthread_mutex_lock(&lock);
    while (at_gate < count) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

void standin_break_at(unsigned n)
{
    pthread_mutex_lock(&lock);
    copies_to_break = n;
    pthread_mutex_unlock(&lock);
}

void standin_refuse_pins(bool refuse)
{
    pthread_mutex_lock(&lock);
    pins_refused = refuse;
    pthread_mutex_unlock(&lock);
}

void standin_damage_next_copy(void)
{
    pthread_mutex_lock(&lock);
    damage = true;
    pthread_mutex_unlock(&lock);
}

struct standin_counts standin_count(void)
{
    struct standin_counts now;

    pthread_mutex_lock(&lock);
    now = counts;
    pthread_mutex_unlock(&lock);
    return now;
}

void standin_reset(void)
{
    standin_gate(true);
    while (streams != NULL) {
        end_stream(streams);
    }
    while (ranges != NULL) {
        remove_range(ranges->base);
    }
    memset(defaults, 0, sizeof(defaults));
    memset(broken, 0, sizeof(broken));
    counts = (struct standin_counts){0};
    copies_to_break = 0;
    gate_from = 0;
    pins_refused = damage = false;
}
