/* SPDX-License-Identifier: Apache-2.0
 * A store of objects: whole values under keys, with one condition that all depends on (create only if absent). Two
 * implementations: s3_store.h (a bucket below a prefix, over HTTP) and the one in memory of the tests.
 *
 * Every call blocks until it is decided, may be made by any thread, and retries by itself what may succeed the next
 * time (cut connections, time-outs, HTTP 409, 429, 500, 503) until its deadline. Keys are relative to the store's
 * prefix: components of [A-Za-z0-9._-] joined by '/', without a leading one. Errors name the key, what was attempted,
 * how often, and the server's request id:
 *
 *     TCK_ERR_NOENT     no such key or upload, by the word of the bucket; never for want of the bucket itself
 *     TCK_ERR_EXIST     create: another value is there
 *     TCK_ERR_DENIED    the server refuses these credentials or this request
 *     TCK_ERR_UNREACHABLE  there are no credentials, or no trust in the server's certificate
 *     TCK_ERR_TIMEDOUT  not decided within the deadline; whether it took effect is unknown
 *     TCK_ERR_CORRUPT   reading: the object is shorter than what was asked of it; writing: the value is not what its
 *                       checksum says, on each of several attempts
 *     TCK_ERR_IO        another error of the server, or an answer that is damaged: proves nothing about an object
 *     TCK_ERR_CANCELED  object_store_cancel was called, or *call->canceled was set */
#ifndef TCK_TIERS_OBJECT_STORE_H
#define TCK_TIERS_OBJECT_STORE_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OBJECT_KEY_MAX 512 /* with the terminator */

struct object_store;

/* How long a call may take, and how it is given up from another thread. */
struct object_call {
    uint32_t deadline_ms; /* of the whole call, retries included; 0: the store's default */
    /* An attempt ends once no byte has moved for so long, and nothing is attempted again, so that the caller learns
     * what was wrong before it takes the store for one that hangs. 0: the store's own limits. */
    uint32_t quiet_ms;
    const atomic_bool *canceled;              /* NULL: only by object_store_cancel */
    void (*moved)(void *ctx, uint64_t bytes); /* NULL: not wanted; called by the thread of the call as bytes pass, and
                                               * with 0 while the end of an upload is awaited */
    void *moved_ctx;
};

struct object_bytes {
    const void *data; /* the caller's; not copied */
    uint64_t bytes;
    const uint32_t *crc32c; /* NULL: not known; else sent along, so that the server refuses anything else, if
                             * object_probe.h finds that it does */
};

struct object_info {
    uint64_t bytes;
    char etag[80]; /* quoted, as the server sent it; empty: it sent none */
};

struct object_listed {
    char *key;      /* owned by the listing; relative to the store's prefix */
    uint64_t bytes; /* 0 for a folder */
    bool folder;    /* a common prefix: key ends in '/' */
};

struct object_listing {
    size_t count;
    struct object_listed *objects; /* sorted by key */
};

/* One large object on its way, in parts of one size (the last may be smaller). Opaque to all but the store. */
struct object_upload {
    char key[OBJECT_KEY_MAX];
    char *id; /* owned */
};

struct object_part {
    char etag[80];
    uint32_t crc32c;
    uint64_t bytes;
};

struct object_ops {
    /* Stores a value, replacing what is there. */
    tck_status_t (*put)(struct object_store *s, const struct object_call *call, const char *key,
                        const struct object_bytes *value, struct error *err);
    /* Stores it only if the key is free. A conflict is resolved by reading back, because the answer to an attempt may
     * have been lost: TCK_OK if the same bytes are there, which is why each writer's value must be its own. */
    tck_status_t (*create)(struct object_store *s, const struct object_call *call, const char *key,
                           const struct object_bytes *value, struct error *err);
    /* The whole value, at most max bytes; NUL-terminated, the caller frees it. Larger: TCK_ERR_INVAL, which stands for
     * nothing else. */
    tck_status_t (*get)(struct object_store *s, const struct object_call *call, const char *key, uint64_t max,
                        char **out, size_t *bytes_out, struct error *err);
    /* Fills buffer with bytes offset to offset + bytes - 1; TCK_ERR_CORRUPT: the object ends before. */
    tck_status_t (*get_range)(struct object_store *s, const struct object_call *call, const char *key, uint64_t offset,
                              void *buffer, uint64_t bytes, struct error *err);
    tck_status_t (*head)(struct object_store *s, const struct object_call *call, const char *key,
                         struct object_info *out, struct error *err);
    /* All keys that begin with prefix, all pages; with folders, what is below the next '/' is one entry. */
    tck_status_t (*list)(struct object_store *s, const struct object_call *call, const char *prefix, bool folders,
                         struct object_listing *out, struct error *err);
    /* A key that does not exist is no error. */
    tck_status_t (*remove)(struct object_store *s, const struct object_call *call, const char *key, struct error *err);

    tck_status_t (*upload_begin)(struct object_store *s, const struct object_call *call, const char *key,
                                 struct object_upload *out, struct error *err);
    /* number counts from 1. May be called by several threads at once for different parts. */
    tck_status_t (*upload_part)(struct object_store *s, const struct object_call *call,
                                const struct object_upload *upload, uint32_t number, const struct object_bytes *value,
                                struct object_part *out, struct error *err);
    /* Frees the upload, except after TCK_ERR_TIMEDOUT: it may be finished or not, and upload_abort, which frees it, is
     * for the caller to call once it knows. Its default deadline is longer than that of other calls. */
    tck_status_t (*upload_finish)(struct object_store *s, const struct object_call *call, struct object_upload *upload,
                                  const struct object_part *parts, uint32_t count, struct error *err);
    /* Frees the upload, whatever the outcome. One that does not exist is no error. */
    tck_status_t (*upload_abort)(struct object_store *s, const struct object_call *call, struct object_upload *upload,
                                 struct error *err);
    /* The uploads below prefix that were begun and neither finished nor aborted; each is the caller's. */
    tck_status_t (*uploads)(struct object_store *s, const struct object_call *call, const char *prefix,
                            struct object_upload **out, size_t *count_out, struct error *err);

    /* All calls under way and later ones end with TCK_ERR_CANCELED. */
    void (*cancel)(struct object_store *s);
    void (*free)(struct object_store *s);
};

/* The first member of each implementation's struct. */
struct object_store {
    const struct object_ops *ops;
    const char *name; /* for texts: the URL without credentials, such as s3://bucket/prefix */
};

void object_listing_free(struct object_listing *listing);

#endif
