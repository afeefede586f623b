/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a message, the first one choosing which: refused, or the one encoding of what was decoded. */
#include "base/message.h"
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>

static void nothing_to_free(void *value)
{
    (void)value;
}

static void free_world(void *value)
{
    world_free(&((struct msg_world *)value)->world);
}

static void free_claim(void *value)
{
    free(((struct msg_claim *)value)->agents);
}

static void free_segments(void *value)
{
    free(((struct msg_segments *)value)->segments);
}

static void free_grant(void *value)
{
    free(((struct msg_grant *)value)->slots);
}

static void free_roots(void *value)
{
    free(((struct msg_roots *)value)->roots);
}

static void free_restored(void *value)
{
    free(((struct msg_restored *)value)->shards);
}

#define TRY(name, release)                                                        \
    static void try_##name(const uint8_t *data, size_t size)                      \
    {                                                                             \
        struct msg_##name m;                                                      \
        if (msg_##name##_decode(data, size, &m) != TCK_OK) {                      \
            return;                                                               \
        }                                                                         \
        struct writer w = writer_new(0);                                          \
        msg_##name##_encode(&m, &w);                                              \
        MUST_HOLD(!w.failed && w.len == size && memcmp(w.data, data, size) == 0); \
        writer_free(&w);                                                          \
        release(&m);                                                              \
    }

TRY(hello, nothing_to_free)
TRY(welcome, nothing_to_free)
TRY(term, nothing_to_free)
TRY(claim, free_claim)
TRY(world, free_world)
TRY(segments, free_segments)
TRY(segment_get, nothing_to_free)
TRY(begin, nothing_to_free)
TRY(grant, free_grant)
TRY(step, nothing_to_free)
TRY(roots, free_roots)
TRY(restore, nothing_to_free)
TRY(restored, free_restored)
TRY(version, nothing_to_free)
TRY(detach, nothing_to_free)
TRY(error, nothing_to_free)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(const uint8_t *, size_t) = {
        try_hello, try_welcome, try_term,     try_world,   try_segments, try_segment_get, try_begin, try_grant,
        try_step,  try_restore, try_restored, try_version, try_detach,   try_error,       try_roots, try_claim};
    if (size > 0) {
        tries[data[0] % (sizeof(tries) / sizeof(tries[0]))](data + 1, size - 1);
    }
    return 0;
}
