/* SPDX-License-Identifier: Apache-2.0
 * The parts of the ring are used in turn; a part that is still in use is waited for. */
#include "client/cuda_bounce.h"

#include <string.h>

static int make(struct ring_part *part, const struct cuda_calls *calls)
{
    int rc = part->memory == NULL ? calls->host_alloc((void **)&part->memory, RING_PART_BYTES) : 0;

    return rc == 0 && part->event == NULL ? calls->event_new(&part->event) : rc;
}

/* Waits for the part's last copy and moves its bytes to their destination. */
static int settle(struct ring_part *part, const struct cuda_calls *calls)
{
    int rc;

    if (part->bytes == 0) {
        return 0;
    }
    rc = calls->event_sync(part->event);
    if (rc == 0 && part->to != NULL) {
        memcpy(part->to, part->memory, part->bytes);
    }
    part->bytes = 0;
    return rc;
}

static int take(struct bounce *ring, const struct cuda_calls *calls, struct ring_part **out)
{
    struct ring_part *part = &ring->parts[ring->next++ % RING_PARTS];
    int rc = make(part, calls);

    *out = part;
    return rc == 0 ? settle(part, calls) : rc;
}

static uint64_t part_of(uint64_t bytes, uint64_t at)
{
    return bytes - at < RING_PART_BYTES ? bytes - at : RING_PART_BYTES;
}

/* The part is in use until what the stream has copied so far is done; then its bytes go on to `to`, NULL: nowhere. */
static int hand_over(struct ring_part *part, const struct cuda_calls *calls, uint8_t *to, uint64_t bytes, void *stream)
{
    int rc = calls->event_record(part->event, stream);
    if (rc == 0) {
        part->to = to;
        part->bytes = bytes;
    }
    return rc;
}

int bounce_to_host(struct bounce *ring, const struct cuda_calls *calls, const struct ring_copy *copy, void *stream)
{
    int rc = 0;

    for (uint64_t at = 0; at < copy->bytes && rc == 0; at += RING_PART_BYTES) {
        uint64_t bytes = part_of(copy->bytes, at);
        struct ring_part *part;

        rc = take(ring, calls, &part);
        if (rc == 0) {
            rc = calls->copy(part->memory, (uint8_t *)copy->device + at, bytes, stream);
        }
        if (rc == 0) {
            rc = hand_over(part, calls, (uint8_t *)copy->host + at, bytes, stream);
        }
    }
    return rc;
}

int bounce_to_device(struct bounce *ring, const struct cuda_calls *calls, const struct ring_copy *copy, void *stream)
{
    int rc = 0;

    for (uint64_t at = 0; at < copy->bytes && rc == 0; at += RING_PART_BYTES) {
        uint64_t bytes = part_of(copy->bytes, at);
        struct ring_part *part;

        rc = take(ring, calls, &part);
        if (rc == 0) {
            memcpy(part->memory, (uint8_t *)copy->host + at, bytes);
            rc = calls->copy((uint8_t *)copy->device + at, part->memory, bytes, stream);
        }
        if (rc == 0) {
            rc = hand_over(part, calls, NULL, bytes, stream);
        }
    }
    return rc;
}

int bounce_drain(struct bounce *ring, const struct cuda_calls *calls)
{
    int first = 0;

    for (unsigned i = 0; i < RING_PARTS; i++) {
        int rc = settle(&ring->parts[(ring->next + i) % RING_PARTS], calls);

        first = first == 0 ? rc : first;
    }
    return first;
}

void bounce_free(struct bounce *ring, const struct cuda_calls *calls)
{
    for (unsigned i = 0; i < RING_PARTS; i++) {
        if (ring->parts[i].event != NULL) {
            calls->event_free(ring->parts[i].event);
        }
        if (ring->parts[i].memory != NULL) {
            calls->host_free(ring->parts[i].memory);
        }
    }
    *ring = (struct bounce){0};
}
