/* SPDX-License-Identifier: Apache-2.0
 * The few calls of the CUDA runtime that the client makes, as a table. The module libtierckpt_cuda.so fills it with the
 * real ones (calls_cuda.cu, the only file that sees CUDA's headers); everything above it is plain C, and works with any
 * table.
 *
 * Each call returns 0 or an error number of its own, which error_text explains. Streams and events are opaque.
 * Streams of the trainer are passed as CUDA represents them: NULL is the default stream. */
#ifndef TCK_CUDA_CALLS_H
#define TCK_CUDA_CALLS_H

#include "cuda/kernels.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_CALLS_VERSION                                                                                           \
    1                                           /* incremented at each change below, since client and module must be \
                                                   of one build */
#define CUDA_CALLS_MODULE "libtierckpt_cuda.so" /* beside libtierckpt.so */
#define CUDA_CALLS_SYMBOL "tierckpt_cuda_calls" /* of type cuda_calls_fn, its one symbol */

/* The CUDA state of a thread before enter, which leave restores. */
struct cuda_place {
    void *context;
    int capture_mode;
};

struct cuda_calls {
    uint32_t version;
    const char *(*error_text)(int error);
    int (*device_count)(int *count_out);
    /* These two enclose all other calls. Between them the calling thread uses that device, and none of its calls can
     * invalidate a graph capture of another thread. leave restores the previous state of the thread; after a failed
     * enter there is nothing to restore. */
    int (*enter)(int device, struct cuda_place *before_out);
    void (*leave)(const struct cuda_place *before);
    /* Checks that these bytes are in this device's memory. */
    int (*is_on)(int device, const void *addr, bool *out);

    int (*stream_new)(void **stream_out); /* of the lowest priority, and not synchronised with the default stream */
    void (*stream_free)(void *stream);
    int (*stream_sync)(void *stream);
    int (*stream_wait)(void *stream, void *event); /* later work on the stream waits, the caller does not */
    int (*stream_capturing)(void *stream, bool *out);
    int (*event_new)(void **event_out); /* waiting for it sleeps; it records no times */
    void (*event_free)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_sync)(void *event);

    int (*copy)(void *to, const void *from, uint64_t bytes, void *stream);
    int (*zero)(void *device_memory, uint64_t bytes, void *stream);
    int (*device_alloc)(void **out, uint64_t bytes);
    void (*device_free)(void *device_memory);
    int (*host_alloc)(void **out, uint64_t bytes); /* pinned */
    void (*host_free)(void *host_memory);
    int (*pin)(void *base, uint64_t bytes); /* existing host memory, for all devices */
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
