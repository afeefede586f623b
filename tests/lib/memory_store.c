/* SPDX-License-Identifier: Apache-2.0
 * See memory_store.h. */
#include "memory_store.h"

#include "base/digest.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OBJECTS_MAX  4096
#define UPLOADS_MAX  64
#define PARTS_MAX    64
#define PENDING_MAX  64
#define FAILURES_MAX 8

struct value {
    char key[OBJECT_KEY_MAX];
    char *data;
    uint64_t bytes;
};

struct upload {
    uint64_t number; /* 0: free */
    char key[OBJECT_KEY_MAX];
    struct value parts[PARTS_MAX + 1];
};

/* A request that arrives later. */
struct pending {
    enum memory_op op;
    struct value value;
};

struct memory {
    pthread_mutex_t lock;
    uint32_t clients;
    struct value objects[OBJECTS_MAX]; /* sorted by key */
    uint32_t count;
    struct upload uploads[UPLOADS_MAX];
    uint64_t last_upload;
    struct pending pending[PENDING_MAX];
    uint32_t pending_count;
    struct memory_failure failures[FAILURES_MAX];
    uint32_t failure_count;
    bool forgetful; /* ignores conditions */
    bool blind;     /* ignores checksums */
    uint32_t calls[16];
    uint64_t sent;
    void (*called)(void *ctx, enum memory_op op, const char *key);
    void *called_ctx;
};

struct client {
    struct object_store store;
    struct memory *memory;
    atomic_bool canceled;
};

static struct memory *memory_of(struct object_store *s)
{
    return ((struct client *)s)->memory;
}

/* ---- objects; all with the lock held ---------------------------------------------------------------------------- */

static char *copy_of(const void *data, uint64_t bytes)
{
    char *copy = malloc(bytes + 1);
    if (bytes > 0) {
        memcpy(copy, data, bytes);
    }
    copy[bytes] = '\0';
    return copy;
}

/* The place of the key, or where it would be. */
static uint32_t place_of(const struct memory *m, const char *key)
{
    uint32_t i = 0;
    while (i < m->count && strcmp(m->objects[i].key, key) < 0) {
        i++;
    }
    return i;
}

static struct value *find(struct memory *m, const char *key)
{
    uint32_t i = place_of(m, key);
    return i < m->count && strcmp(m->objects[i].key, key) == 0 ? &m->objects[i] : NULL;
}

static void set(struct memory *m, const char *key, const void *data, uint64_t bytes)
{
    struct value *there = find(m, key);
    char *copy = copy_of(data, bytes);
    if (there == NULL) {
        uint32_t i = place_of(m, key);
        if (m->count == OBJECTS_MAX) {
            abort();
        }
        memmove(&m->objects[i + 1], &m->objects[i], (m->count - i) * sizeof(*m->objects));
        m->count++;
        there = &m->objects[i];
        *there = (struct value){0};
        snprintf(there->key, sizeof(there->key), "%s", key);
    }
    free(there->data);
    there->data = copy;
    there->bytes = bytes;
}

static void unset(struct memory *m, const char *key)
{
    struct value *there = find(m, key);
    if (there != NULL) {
        free(there->data);
        memmove(there, there + 1, (size_t)(&m->objects[m->count] - (there + 1)) * sizeof(*there));
        m->count--;
    }
}

static tck_status_t create(struct memory *m, const char *key, const void *data, uint64_t bytes, struct error *err)
{
    const struct value *there = m->forgetful ? NULL : find(m, key);
    if (there != NULL && (there->bytes != bytes || memcmp(there->data, data, bytes) != 0)) {
        return error_set(err, TCK_ERR_EXIST, "create %s: another value is there", key);
    }
    set(m, key, data, bytes);
    return TCK_OK;
}

/* ---- faults ---------------------------------------------------------------------------------------------------- */

static uint32_t index_of(enum memory_op op)
{
    return (uint32_t)__builtin_ctz(op);
}

static const struct memory_failure *failure_of(struct memory *m, enum memory_op op, const char *key)
{
    for (uint32_t i = 0; i < m->failure_count; i++) {
        struct memory_failure *f = &m->failures[i];
        if ((f->ops & op) == 0 || strstr(key, f->key) == NULL) {
            continue;
        }
        if (f->skip > 0) {
            f->skip--;
        } else if (f->count > 0) {
            f->count--;
            return f;
        }
    }
    return NULL;
}

static void postpone(struct memory *m, enum memory_op op, const char *key, const struct object_bytes *value)
{
    struct pending *p = &m->pending[m->pending_count++];
    if (m->pending_count > PENDING_MAX) {
        abort();
    }
    *p = (struct pending){.op = op};
    snprintf(p->value.key, sizeof(p->value.key), "%s", key);
    p->value.data = value == NULL ? NULL : copy_of(value->data, value->bytes);
    p->value.bytes = value == NULL ? 0 : value->bytes;
}

static tck_status_t timed_out(const char *what, const char *key, struct error *err)
{
    return error_set(err, TCK_ERR_TIMEDOUT, "%s %s: no answer (tried 3 times)", what, key);
}

static bool is_canceled(struct object_store *s, const struct object_call *call)
{
    return atomic_load(&((struct client *)s)->canceled) ||
           (call != NULL && call->canceled != NULL && atomic_load(call->canceled));
}

static void wait_until_canceled(struct object_store *s, const struct object_call *call)
{
    pthread_mutex_unlock(&memory_of(s)->lock);
    while (!is_canceled(s, call)) {
        usleep(1000);
    }
    pthread_mutex_lock(&memory_of(s)->lock);
}

/* Begins a call: takes the lock. *effect: whether it takes effect; the status is what the call ends with, if it is not
 * decided by the effect. */
static tck_status_t begin(struct object_store *s, const struct object_call *call, enum memory_op op, const char *key,
                          const struct object_bytes *value, bool *effect, struct error *err)
{
    struct memory *m = memory_of(s);
    bool canceled = is_canceled(s, call);
    pthread_mutex_lock(&m->lock);
    m->calls[index_of(op)]++;
    *effect = !canceled;
    if (canceled) {
        return error_set(err, TCK_ERR_CANCELED, "%s: canceled", key);
    }
    const struct memory_failure *f = failure_of(m, op, key);
    if (f == NULL) {
        return TCK_OK;
    }
    *effect = f->fault == MEMORY_LOST || f->fault == MEMORY_TWICE || f->fault == MEMORY_WRONG;
    if (f->fault == MEMORY_LATE || f->fault == MEMORY_TWICE) {
        postpone(m, op, key, value);
    }
    if (f->fault == MEMORY_HANGS) {
        wait_until_canceled(s, call);
        return error_set(err, TCK_ERR_CANCELED, "%s: canceled", key);
    }
    if (f->fault == MEMORY_GARBLED) {
        return error_set(err, TCK_ERR_CORRUPT, "%s: the answer makes no sense", key);
    }
    if (f->fault == MEMORY_DENIED) {
        return error_set(err, TCK_ERR_DENIED, "%s/%s: HTTP 403, AccessDenied", s->name, key);
    }
    if (f->fault == MEMORY_GONE) {
        return error_set(err, TCK_ERR_NOENT, "%s: HTTP 404, NoSuchBucket", key);
    }
    if (f->fault == MEMORY_WRONG) {
        return error_set(err, TCK_ERR_CORRUPT, "wrong");
    }
    return f->fault == MEMORY_TWICE ? TCK_OK : timed_out("call", key, err);
}

static tck_status_t end(struct object_store *s, enum memory_op op, const char *key, tck_status_t status)
{
    struct memory *m = memory_of(s);
    void (*called)(void *ctx, enum memory_op op, const char *key) = m->called;
    void *ctx = m->called_ctx;
    pthread_mutex_unlock(&m->lock);
    if (called != NULL) {
        called(ctx, op, key);
    }
    return status;
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static tck_status_t check_crc(const struct memory *m, const char *key, const struct object_bytes *value,
                              struct error *err)
{
    bool wrong = !m->blind && value->crc32c != NULL && crc32c(0, value->data, value->bytes) != *value->crc32c;
    return wrong ? error_set(err, TCK_ERR_CORRUPT, "%s: the bytes do not match their CRC", key) : TCK_OK;
}

static tck_status_t do_put(struct object_store *s, const struct object_call *call, const char *key,
                           const struct object_bytes *value, struct error *err)
{
    bool effect;
    tck_status_t status = begin(s, call, MEMORY_PUT, key, value, &effect, err);
    memory_of(s)->sent += value->bytes;
    if (status == TCK_OK) {
        status = check_crc(memory_of(s), key, value, err);
    }
    if (effect && status != TCK_ERR_CORRUPT) {
        set(memory_of(s), key, value->data, value->bytes);
    }
    return end(s, MEMORY_PUT, key, status);
}

static tck_status_t do_create(struct object_store *s, const struct object_call *call, const char *key,
                              const struct object_bytes *value, struct error *err)
{
    bool effect;
    struct error ignored;
    tck_status_t status = begin(s, call, MEMORY_CREATE, key, value, &effect, err);
    memory_of(s)->sent += value->bytes;
    if (effect) {
        tck_status_t made = create(memory_of(s), key, value->data, value->bytes, status == TCK_OK ? err : &ignored);
        status = status == TCK_OK ? made : status;
    }
    return end(s, MEMORY_CREATE, key, status);
}

static tck_status_t missing(const char *key, struct error *err)
{
    return error_set(err, TCK_ERR_NOENT, "%s: HTTP 404, NoSuchKey", key);
}

static tck_status_t do_get(struct object_store *s, const struct object_call *call, const char *key, uint64_t max,
                           char **out, size_t *bytes_out, struct error *err)
{
    bool effect;
    tck_status_t status = begin(s, call, MEMORY_GET, key, NULL, &effect, err);
    bool wrong = effect && status == TCK_ERR_CORRUPT;
    if (effect && (status == TCK_OK || wrong)) {
        const struct value *there = find(memory_of(s), key);
        status = there == NULL        ? missing(key, err)
                 : there->bytes > max ? error_set(err, TCK_ERR_INVAL, "%s is larger than %zu bytes", key, (size_t)max)
                                      : TCK_OK;
        if (status == TCK_OK) {
            *out = copy_of(there->data, there->bytes);
            *bytes_out = there->bytes;
            (*out)[0] = (char)((*out)[0] ^ (wrong ? 1 : 0));
        }
    }
    return end(s, MEMORY_GET, key, status);
}

static tck_status_t do_get_range(struct object_store *s, const struct object_call *call, const char *key,
                                 uint64_t offset, void *buffer, uint64_t bytes, struct error *err)
{
    bool effect;
    tck_status_t status = begin(s, call, MEMORY_GET, key, NULL, &effect, err);
    bool wrong = effect && status == TCK_ERR_CORRUPT;
    if (effect && (status == TCK_OK || wrong)) {
        const struct value *there = find(memory_of(s), key);
        status = there == NULL ? missing(key, err)
                 : offset > there->bytes || bytes > there->bytes - offset
                     ? error_set(err, TCK_ERR_CORRUPT, "%s ends", key)
                     : TCK_OK;
        if (status == TCK_OK) {
            memcpy(buffer, there->data + offset, bytes);
            *(char *)buffer = (char)(*(char *)buffer ^ (wrong ? 1 : 0));
        }
    }
    if (call != NULL && call->moved != NULL) {
        call->moved(call->moved_ctx, bytes);
    }
    return end(s, MEMORY_GET, key, status);
}

static tck_status_t do_head(struct object_store *s, const struct object_call *call, const char *key,
                            struct object_info *out, struct error *err)
{
    bool effect;
    tck_status_t status = begin(s, call, MEMORY_HEAD, key, NULL, &effect, err);
    if (status == TCK_OK) {
        const struct value *there = find(memory_of(s), key);
        status = there == NULL ? missing(key, err) : TCK_OK;
        if (status == TCK_OK) {
            *out = (struct object_info){.bytes = there->bytes};
        }
    }
    return end(s, MEMORY_HEAD, key, status);
}

static void add_listed(struct object_listing *out, const char *key, size_t len, uint64_t bytes, bool folder)
{
    const struct object_listed *last = out->count == 0 ? NULL : &out->objects[out->count - 1];
    if (folder && last != NULL && last->folder && strlen(last->key) == len && strncmp(last->key, key, len) == 0) {
        return;
    }
    out->objects = reallocarray(out->objects, out->count + 1, sizeof(*out->objects));
    out->objects[out->count++] =
        (struct object_listed){.key = strndup(key, len), .bytes = folder ? 0 : bytes, .folder = folder};
}

static tck_status_t do_list(struct object_store *s, const struct object_call *call, const char *prefix, bool folders,
                            struct object_listing *out, struct error *err)
{
    bool effect;
    const struct memory *m = memory_of(s);
    size_t head = strlen(prefix);
    tck_status_t status = begin(s, call, MEMORY_LIST, prefix, NULL, &effect, err);
    *out = (struct object_listing){0};
    for (uint32_t i = 0; i < m->count && status == TCK_OK; i++) {
        const struct value *v = &m->objects[i];
        const char *slash;
        if (strncmp(v->key, prefix, head) != 0) {
            continue;
        }
        slash = folders ? strchr(v->key + head, '/') : NULL;
        add_listed(out, v->key, slash == NULL ? strlen(v->key) : (size_t)(slash + 1 - v->key), v->bytes, slash != NULL);
    }
    return end(s, MEMORY_LIST, prefix, status);
}

static tck_status_t do_remove(struct object_store *s, const struct object_call *call, const char *key,
                              struct error *err)
{
    bool effect;
    tck_status_t status = begin(s, call, MEMORY_REMOVE, key, NULL, &effect, err);
    if (effect) {
        unset(memory_of(s), key);
    }
    return end(s, MEMORY_REMOVE, key, status);
}

/* ---- uploads --------------------------------------------------------------------------------------------------- */

static struct upload *find_upload(struct memory *m, const char *id)
{
    for (uint32_t i = 0; i < UPLOADS_MAX; i++) {
        if (m->uploads[i].number != 0 && m->uploads[i].number == strtoull(id, NULL, 10)) {
            return &m->uploads[i];
        }
    }
    return NULL;
}

static void drop_upload(struct upload *u)
{
    for (uint32_t i = 0; i <= PARTS_MAX; i++) {
        free(u->parts[i].data);
    }
    *u = (struct upload){0};
}

static tck_status_t no_upload(const char *key, struct error *err)
{
    return error_set(err, TCK_ERR_NOENT, "%s: HTTP 404, NoSuchUpload", key);
}

static tck_status_t do_begin(struct object_store *s, const struct object_call *call, const char *key,
                             struct object_upload *out, struct error *err)
{
    bool effect;
    struct memory *m = memory_of(s);
    tck_status_t status = begin(s, call, MEMORY_BEGIN, key, NULL, &effect, err);
    if (effect) {
        uint32_t i = 0;
        while (m->uploads[i].number != 0) {
            i++;
        }
        m->uploads[i].number = ++m->last_upload;
        snprintf(m->uploads[i].key, sizeof(m->uploads[i].key), "%s", key);
    }
    if (status == TCK_OK) {
        *out = (struct object_upload){0};
        snprintf(out->key, sizeof(out->key), "%s", key);
        status = asprintf(&out->id, "%llu", (unsigned long long)m->last_upload) < 0 ? TCK_ERR_NOMEM : TCK_OK;
    }
    return end(s, MEMORY_BEGIN, key, status);
}

static tck_status_t do_part(struct object_store *s, const struct object_call *call, const struct object_upload *upload,
                            uint32_t number, const struct object_bytes *value, struct object_part *out,
                            struct error *err)
{
    bool effect;
    struct memory *m = memory_of(s);
    tck_status_t status = begin(s, call, MEMORY_PART, upload->key, value, &effect, err);
    m->sent += value->bytes;
    if (status == TCK_OK) {
        status = check_crc(m, upload->key, value, err);
    }
    struct upload *u = status == TCK_OK ? find_upload(m, upload->id) : NULL;
    if (status == TCK_OK && (u == NULL || number > PARTS_MAX)) {
        status = no_upload(upload->key, err);
    }
    if (status == TCK_OK) {
        free(u->parts[number].data);
        u->parts[number].data = copy_of(value->data, value->bytes);
        u->parts[number].bytes = value->bytes;
        *out = (struct object_part){
            .etag = "\"part\"", .crc32c = crc32c(0, value->data, value->bytes), .bytes = value->bytes};
    }
    return end(s, MEMORY_PART, upload->key, status);
}

/* Joins the parts. */
static void complete(struct memory *m, const struct upload *u, uint32_t count)
{
    uint64_t bytes = 0, done = 0;
    for (uint32_t i = 1; i <= count; i++) {
        bytes += u->parts[i].bytes;
    }
    char *whole = malloc(bytes + 1);
    for (uint32_t i = 1; i <= count; i++) {
        memcpy(whole + done, u->parts[i].data, u->parts[i].bytes);
        done += u->parts[i].bytes;
    }
    set(m, u->key, whole, bytes);
    free(whole);
}

static tck_status_t do_finish(struct object_store *s, const struct object_call *call, struct object_upload *upload,
                              const struct object_part *parts, uint32_t count, struct error *err)
{
    bool effect;
    struct memory *m = memory_of(s);
    tck_status_t status = begin(s, call, MEMORY_FINISH, upload->key, NULL, &effect, err);
    struct upload *u = find_upload(m, upload->id);
    (void)parts;
    if (effect && u != NULL) {
        complete(m, u, count);
        drop_upload(u);
    } else if (effect && status == TCK_OK) {
        status = no_upload(upload->key, err);
    }
    status = end(s, MEMORY_FINISH, upload->key, status);
    free(upload->id);
    upload->id = NULL;
    return status;
}

static tck_status_t do_abort(struct object_store *s, const struct object_call *call, struct object_upload *upload,
                             struct error *err)
{
    bool effect;
    tck_status_t status = begin(s, call, MEMORY_ABORT, upload->key, NULL, &effect, err);
    struct upload *u = effect ? find_upload(memory_of(s), upload->id) : NULL;
    if (u != NULL) {
        drop_upload(u);
    }
    status = end(s, MEMORY_ABORT, upload->key, status);
    free(upload->id);
    upload->id = NULL;
    return status;
}

static tck_status_t do_uploads(struct object_store *s, const struct object_call *call, const char *prefix,
                               struct object_upload **out, size_t *count_out, struct error *err)
{
    bool effect;
    const struct memory *m = memory_of(s);
    struct object_upload *found = calloc(UPLOADS_MAX, sizeof(*found));
    size_t count = 0;
    tck_status_t status = begin(s, call, MEMORY_LIST, prefix, NULL, &effect, err);
    for (uint32_t i = 0; i < UPLOADS_MAX && status == TCK_OK; i++) {
        const struct upload *u = &m->uploads[i];
        if (u->number != 0 && strncmp(u->key, prefix, strlen(prefix)) == 0) {
            snprintf(found[count].key, sizeof(found[count].key), "%s", u->key);
            status = asprintf(&found[count++].id, "%llu", (unsigned long long)u->number) < 0 ? TCK_ERR_NOMEM : TCK_OK;
        }
    }
    if (status == TCK_OK) {
        *out = found;
        *count_out = count;
    } else {
        free(found);
    }
    return end(s, MEMORY_LIST, prefix, status);
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static void do_cancel(struct object_store *s)
{
    atomic_store(&((struct client *)s)->canceled, true);
}

static void memory_free(struct memory *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        free(m->objects[i].data);
    }
    for (uint32_t i = 0; i < UPLOADS_MAX; i++) {
        drop_upload(&m->uploads[i]);
    }
    for (uint32_t i = 0; i < m->pending_count; i++) {
        free(m->pending[i].value.data);
    }
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void do_free(struct object_store *s)
{
    struct memory *m = memory_of(s);
    pthread_mutex_lock(&m->lock);
    bool last = --m->clients == 0;
    pthread_mutex_unlock(&m->lock);
    if (last) {
        memory_free(m);
    }
    free(s);
}

static const struct object_ops ops = {do_put,   do_create, do_get,    do_get_range, do_head,    do_list,   do_remove,
                                      do_begin, do_part,   do_finish, do_abort,     do_uploads, do_cancel, do_free};

static struct object_store *client_new(struct memory *m)
{
    struct client *c = calloc(1, sizeof(*c));
    m->clients++;
    c->store = (struct object_store){.ops = &ops, .name = "s3://memory"};
    c->memory = m;
    return &c->store;
}

struct object_store *memory_store_new(void)
{
    struct memory *m = calloc(1, sizeof(*m));
    pthread_mutex_init(&m->lock, NULL);
    return client_new(m);
}

struct object_store *memory_store_client(struct object_store *store)
{
    struct memory *m = memory_of(store);
    pthread_mutex_lock(&m->lock);
    struct object_store *client = client_new(m);
    pthread_mutex_unlock(&m->lock);
    return client;
}

/* ---- what tests do --------------------------------------------------------------------------------------------- */

void memory_store_fail(struct object_store *store, const struct memory_failure *failure)
{
    struct memory *m = memory_of(store);
    pthread_mutex_lock(&m->lock);
    m->failures[m->failure_count++] = *failure;
    pthread_mutex_unlock(&m->lock);
}

void memory_store_heal(struct object_store *store)
{
    struct memory *m = memory_of(store);
    pthread_mutex_lock(&m->lock);
    m->failure_count = 0;
    pthread_mutex_unlock(&m->lock);
}

void memory_store_deliver(struct object_store *store)
{
    struct memory *m = memory_of(store);
    struct error ignored;
    pthread_mutex_lock(&m->lock);
    for (uint32_t i = 0; i < m->pending_count; i++) {
        struct value *v = &m->pending[i].value;
        if (m->pending[i].op == MEMORY_PUT) {
            set(m, v->key, v->data, v->bytes);
        } else if (m->pending[i].op == MEMORY_CREATE) {
            (void)create(m, v->key, v->data, v->bytes, &ignored);
        } else if (m->pending[i].op == MEMORY_REMOVE) {
            unset(m, v->key);
        }
        free(v->data);
    }
    m->pending_count = 0;
    pthread_mutex_unlock(&m->lock);
}

void memory_store_forget_conditions(struct object_store *store)
{
    memory_of(store)->forgetful = true;
}

void memory_store_forget_checksums(struct object_store *store)
{
    memory_of(store)->blind = true;
}

void memory_store_watch(struct object_store *store, void (*called)(void *ctx, enum memory_op op, const char *key),
                        void *ctx)
{
    struct memory *m = memory_of(store);
    pthread_mutex_lock(&m->lock);
    m->called = called;
    m->called_ctx = ctx;
    pthread_mutex_unlock(&m->lock);
}

uint32_t memory_store_calls(struct object_store *store, unsigned wanted)
{
    struct memory *m = memory_of(store);
    uint32_t count = 0;
    pthread_mutex_lock(&m->lock);
    for (uint32_t i = 0; i < sizeof(m->calls) / sizeof(m->calls[0]); i++) {
        count += (wanted >> i & 1u) != 0 ? m->calls[i] : 0;
    }
    pthread_mutex_unlock(&m->lock);
    return count;
}

uint64_t memory_store_sent(struct object_store *store)
{
    struct memory *m = memory_of(store);
    pthread_mutex_lock(&m->lock);
    uint64_t sent = m->sent;
    pthread_mutex_unlock(&m->lock);
    return sent;
}

uint32_t memory_store_count(struct object_store *store, const char *prefix)
{
    struct memory *m = memory_of(store);
    uint32_t count = 0;
    pthread_mutex_lock(&m->lock);
    for (uint32_t i = 0; i < m->count; i++) {
        count += strncmp(m->objects[i].key, prefix, strlen(prefix)) == 0;
    }
    pthread_mutex_unlock(&m->lock);
    return count;
}

uint32_t memory_store_uploads(struct object_store *store)
{
    struct memory *m = memory_of(store);
    uint32_t count = 0;
    pthread_mutex_lock(&m->lock);
    for (uint32_t i = 0; i < UPLOADS_MAX; i++) {
        count += m->uploads[i].number != 0;
    }
    pthread_mutex_unlock(&m->lock);
    return count;
}

void memory_store_set(struct object_store *store, const char *key, const void *data, size_t bytes)
{
    struct memory *m = memory_of(store);
    pthread_mutex_lock(&m->lock);
    if (data != NULL) {
        set(m, key, data, bytes);
    } else {
        unset(m, key);
    }
    pthread_mutex_unlock(&m->lock);
}

bool memory_store_has(struct object_store *store, const char *key)
{
    struct memory *m = memory_of(store);
    pthread_mutex_lock(&m->lock);
    bool has = find(m, key) != NULL;
    pthread_mutex_unlock(&m->lock);
    return has;
}

void memory_store_damage(struct object_store *store, const char *key, uint64_t offset)
{
    struct memory *m = memory_of(store);
    pthread_mutex_lock(&m->lock);
    struct value *there = find(m, key);
    if (there != NULL && offset < there->bytes) {
        there->data[offset] = (char)(there->data[offset] ^ 1);
    }
    pthread_mutex_unlock(&m->lock);
}
