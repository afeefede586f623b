/* SPDX-License-Identifier: Apache-2.0
 * Calls of a store of objects, one for each line of JSON on standard input, each answered by a line:
 * s3_driver s3://bucket/prefix. A value is "text", or "size" bytes made of "seed". */
#include "base/clock.h"
#include "base/digest.h"
#include "base/json.h"
#include "tiers/object/object_probe.h"
#include "tiers/object/s3_store.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct object_store *store;
static struct object_upload upload;
static struct object_part parts[1000];
static uint32_t part_count;
static atomic_bool canceled;
static uint64_t moved, calls; /* bytes, and how often they were reported */

/* One line and the answer to it. */
struct ask {
    const json_t *in;
    json_t *out;
    const char *key;
    struct object_call call;
    struct object_bytes value;
    char *made; /* to free */
    uint32_t crc;
    struct error err;
};

static uint64_t number(const json_t *in, const char *name, uint64_t otherwise)
{
    uint64_t value;
    return json_u64(json_get(in, name), &value) ? value : otherwise;
}

static void count_moved(void *ctx, uint64_t bytes)
{
    (void)ctx;
    moved += bytes;
    calls++;
}

static void make_value(struct ask *a)
{
    const char *text = json_str(json_get(a->in, "text"));
    if (text != NULL) {
        a->value = (struct object_bytes){.data = text, .bytes = strlen(text)};
    } else {
        uint64_t size = number(a->in, "size", 0), x = number(a->in, "seed", 1) * 0x9e3779b97f4a7c15u + 1;
        a->made = malloc(size + 8);
        for (uint64_t i = 0; i < size; i += 8) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            memcpy(a->made + i, &x, 8);
        }
        a->value = (struct object_bytes){.data = a->made, .bytes = size};
    }
    a->crc = crc32c(0, a->value.data, a->value.bytes) ^ (uint32_t)number(a->in, "wrong_crc", 0);
    a->value.crc32c = &a->crc;
}

static void tell_bytes(struct ask *a, const char *data, uint64_t bytes)
{
    json_add_u64(a->out, "bytes", bytes);
    json_add_u64(a->out, "crc", crc32c(0, data, bytes));
    if (bytes < 200 && memchr(data, '\0', bytes) == NULL) {
        char text[200];
        snprintf(text, sizeof(text), "%.*s", (int)bytes, data);
        json_add_str(a->out, "text", text);
    }
}

static tck_status_t do_put(struct ask *a)
{
    return store->ops->put(store, &a->call, a->key, &a->value, &a->err);
}

static tck_status_t do_create(struct ask *a)
{
    return store->ops->create(store, &a->call, a->key, &a->value, &a->err);
}

static tck_status_t do_crc(struct ask *a)
{
    json_add_u64(a->out, "crc", a->crc);
    return TCK_OK;
}

static tck_status_t do_get(struct ask *a)
{
    char *data = NULL;
    size_t bytes = 0;
    tck_status_t status =
        store->ops->get(store, &a->call, a->key, number(a->in, "max", 1 << 20), &data, &bytes, &a->err);
    if (status == TCK_OK) {
        tell_bytes(a, data, bytes);
        free(data);
    }
    return status;
}

static tck_status_t do_get_range(struct ask *a)
{
    uint64_t bytes = number(a->in, "bytes", 0);
    char *data = calloc(1, bytes + 1);
    tck_status_t status =
        store->ops->get_range(store, &a->call, a->key, number(a->in, "offset", 0), data, bytes, &a->err);
    if (status == TCK_OK) {
        tell_bytes(a, data, bytes);
    }
    free(data);
    return status;
}

static tck_status_t do_head(struct ask *a)
{
    struct object_info info;
    tck_status_t status = store->ops->head(store, &a->call, a->key, &info, &a->err);
    if (status == TCK_OK) {
        json_add_u64(a->out, "bytes", info.bytes);
        json_add_str(a->out, "etag", info.etag);
    }
    return status;
}

static tck_status_t do_list(struct ask *a)
{
    struct object_listing listing;
    bool folders = number(a->in, "folders", 0) != 0;
    tck_status_t status = store->ops->list(store, &a->call, a->key, folders, &listing, &a->err);
    if (status == TCK_OK) {
        json_t *keys = json_object();
        for (size_t i = 0; i < listing.count; i++) {
            json_add_u64(keys, listing.objects[i].key, listing.objects[i].bytes);
        }
        json_add(a->out, "keys", keys);
        object_listing_free(&listing);
    }
    return status;
}

static tck_status_t do_remove(struct ask *a)
{
    return store->ops->remove(store, &a->call, a->key, &a->err);
}

static tck_status_t do_begin(struct ask *a)
{
    part_count = 0;
    return store->ops->upload_begin(store, &a->call, a->key, &upload, &a->err);
}

static tck_status_t do_part(struct ask *a)
{
    tck_status_t status =
        store->ops->upload_part(store, &a->call, &upload, part_count + 1, &a->value, &parts[part_count], &a->err);
    part_count += status == TCK_OK;
    return status;
}

static tck_status_t do_finish(struct ask *a)
{
    return store->ops->upload_finish(store, &a->call, &upload, parts, part_count, &a->err);
}

static tck_status_t do_abort(struct ask *a)
{
    return store->ops->upload_abort(store, &a->call, &upload, &a->err);
}

/* Aborts all uploads below the key, too, if asked for. */
static tck_status_t do_uploads(struct ask *a)
{
    struct object_upload *found = NULL;
    size_t count = 0;
    tck_status_t status = store->ops->uploads(store, &a->call, a->key, &found, &count, &a->err);
    if (status != TCK_OK) {
        return status;
    }
    json_t *keys = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *item = json_object();
        json_add_str(item, "key", found[i].key);
        json_add(keys, NULL, item);
        if (number(a->in, "abort", 0) != 0 && status == TCK_OK) {
            status = store->ops->upload_abort(store, &a->call, &found[i], &a->err);
        }
        free(found[i].id);
    }
    free(found);
    json_add(a->out, "uploads", keys);
    return status;
}

static tck_status_t do_probe(struct ask *a)
{
    struct object_traits traits = {0};
    tck_status_t status = object_probe(store, &a->call, PROBE_NAME, &traits, &a->err);
    if (status == TCK_OK) {
        json_add_bool(a->out, "honours_conditions", traits.honours_conditions);
        json_add_bool(a->out, "checks_checksums", traits.checks_checksums);
    }
    return status;
}

static const struct {
    const char *name;
    tck_status_t (*run)(struct ask *a);
} ops[] = {{"put", do_put},         {"create", do_create},       {"crc", do_crc},
           {"get", do_get},         {"get_range", do_get_range}, {"head", do_head},
           {"list", do_list},       {"remove", do_remove},       {"begin", do_begin},
           {"part", do_part},       {"finish", do_finish},       {"abort", do_abort},
           {"uploads", do_uploads}, {"probe", do_probe}};

static void *cancel_later(void *ctx)
{
    uint64_t ms = *(uint64_t *)ctx;
    struct timespec wait = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&wait, NULL);
    atomic_store(&canceled, true);
    return NULL;
}

static tck_status_t run(struct ask *a)
{
    const char *op = json_str(json_get(a->in, "op"));
    uint64_t cancel_ms = number(a->in, "cancel_ms", 0);
    pthread_t thread;
    atomic_store(&canceled, false);
    if (cancel_ms > 0 && pthread_create(&thread, NULL, cancel_later, &cancel_ms) != 0) {
        abort();
    }
    tck_status_t status = TCK_ERR_INVAL;
    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
        if (op != NULL && strcmp(op, ops[i].name) == 0) {
            status = ops[i].run(a);
        }
    }
    if (cancel_ms > 0) {
        pthread_join(thread, NULL);
    }
    return status;
}

static void answer(const json_t *in)
{
    struct ask a = {.in = in, .out = json_object(), .key = json_str(json_get(in, "key"))};
    uint64_t begun = clock_ms();
    a.key = a.key == NULL ? "" : a.key;
    a.call = (struct object_call){.deadline_ms = (uint32_t)number(in, "deadline_ms", 20000),
                                  .quiet_ms = (uint32_t)number(in, "quiet_ms", 0),
                                  .canceled = &canceled,
                                  .moved = count_moved};
    moved = calls = 0;
    make_value(&a);
    tck_status_t status = run(&a);
    json_add_str(a.out, "status", status_text(status));
    json_add_str(a.out, "error", status == TCK_OK ? "" : a.err.text);
    json_add_u64(a.out, "moved", moved);
    json_add_u64(a.out, "calls", calls);
    json_add_u64(a.out, "ms", clock_ms() - begun);
    char *text = json_print(a.out, false);
    puts(text);
    fflush(stdout);
    free(text);
    free(a.made);
    json_free(a.out);
}

int main(int argc, char **argv)
{
    struct error err;
    char *line = NULL;
    size_t cap = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: s3_driver s3://bucket/prefix <calls\n");
        return 2;
    }
    if (s3_store_new(argv[1], &store, &err) != TCK_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    while (getline(&line, &cap, stdin) > 0) {
        json_t *in = NULL;
        if (json_parse(line, strlen(line), &in, &err) != TCK_OK) {
            fprintf(stderr, "%s\n", err.text);
            return 2;
        }
        answer(in);
        json_free(in);
    }
    free(line);
    free(upload.id);
    store->ops->free(store);
    return 0;
}
