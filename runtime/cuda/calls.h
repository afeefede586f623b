/* SPDX-License-Identifier: Apache-2.0
 * The few calls of the CUDA runtime that the client makes, as a table. The module libtierckpt_cuda.so fills it with the
 * real ones (calls_cuda.cu, the only file that sees CUDA's headers); everything above it is plain C and does not care
 * who fills it.
 *
 * Each call returns 0 or an error number of its own, which error_text explains. Streams and events are opaque. Streams
 * of the trainer come in as CUDA has them: NULL is the default stream. */
#ifndef TCK_CUDA_CALLS_H
#define TCK_CUDA_CALLS_H

#include "cuda/kernels.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_CALLS_VERSION 1                     /* grows with each change below: client and module are of one build */
#define CUDA_CALLS_MODULE  "libtierckpt_cuda.so" /* beside libtierckpt.so */
#define CUDA_CALLS_SYMBOL  "tierckpt_cuda_calls" /* of type cuda_calls_fn, its one symbol */

/* The CUDA state of a thread before enter, which leave restores. */
struct cuda_place {
    void *context;
    int capture_mode;
};

struct cuda_calls {
    uint32_t version;
    const char *(*error_text)(int error);
    int (*device_count)(int *count_out);
    /* Around all others. Between them the calling thread works on that device, and nothing that it calls can spoil a
     * graph capture of another thread; leave puts everything back as the thread had it. enter leaves nothing to put
     * back if it fails. */
    int (*enter)(int device, struct cuda_place *before_out);
    void (*leave)(const struct cuda_place *before);
    /* Whether these are bytes of this device's memory. */
    int (*is_on)(int device, const void *addr, bool *out);

    int (*stream_new)(void **stream_out); /* of the lowest priority, and not held up by the default stream */
    void (*stream_free)(void *stream);
    int (*stream_sync)(void *stream);
    int (*stream_wait)(void *stream, void *event); /* what follows on the stream waits, the caller does not */
    int (*stream_capturing)(void *stream, bool *out);
    int (*event_new)(void **event_out); /* to sleep on; without times */
    void (*event_free)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_sync)(void *event);

    int (*copy)(void *to, const void *from, uint64_t bytes, void *stream);
    int (*zero)(void *device_memory, uint64_t bytes, void *stream);
    int (*device_alloc)(void **out, uint64_t bytes);
    void (*device_free)(void *device_memory);
    int (*host_alloc)(void **out, uint64_t bytes); /* pinned */
    void (*host_free)(void *host_memory);
    int (*pin)(void *base, uint64_t bytes); /* host memory that is there already, for all devices */
    void (*unpin)(void *base);

    /* The kernels of kernels.h, on a stream; pieces in device memory. */
    int (*gather)(void *stream, const struct gather_piece *pieces, uint32_t count, void *packed);
    int (*scatter)(void *stream, const struct gather_piece *pieces, uint32_t count, const void *packed);
    int (*digest)(void *stream, const void *image, uint64_t bytes, uint32_t *crcs);
    int (*digest_pieces)(void *stream, const struct gather_piece *pieces, uint32_t count, uint64_t image_bytes,
                         uint32_t *crcs);
};

typedef const struct cuda_calls *cuda_calls_fn(void);

#ifdef __cplusplus
}
#endif
#endif
