/* SPDX-License-Identifier: Apache-2.0
 * See device_digests.h. */
#include "client/device_digests.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>

tck_status_t device_digests_make(const struct devices *devices, struct slots *slots, const struct layout *layout,
                                 const struct device_image *images, uint32_t count, struct error *err)
{
    tck_status_t status = devices_await_digests(devices, err);

    for (uint32_t i = 0; i < count && status == TCK_OK; i++) {
        struct shard_slots *shard = &slots->shards[images[i].shard];

        shard->root_made = devices_root(devices, layout, &images[i], &shard->root);
    }
    return status;
}

static bool any_made(const struct slots *slots)
{
    for (uint32_t i = 0; i < slots->count; i++) {
        if (slots->shards[i].root_made) {
            return true;
        }
    }
    return false;
}

void device_digests_send(struct session *session, const struct slots *slots, uint64_t step)
{
    if (!any_made(slots)) {
        return; /* as always without devices */
    }
    struct msg_roots message = {.seq = session_seq(session), .step = step};
    struct writer w = writer_new(0);

    message.roots = calloc(slots->count + (size_t)1, sizeof(*message.roots));
    for (uint32_t i = 0; i < slots->count && message.roots != NULL; i++) {
        if (slots->shards[i].root_made) {
            message.roots[message.count++] = (struct msg_root){slots->shards[i].segment.shard, slots->shards[i].root};
        }
    }
    if (message.count > 0) {
        msg_roots_encode(&message, &w);
        if (session_post(session, MSG_ROOTS, &w, NULL) != TCK_OK) {
            log_debug("the roots of step %" PRIu64 " did not reach the agent; it computes its own", step);
        }
    }
    free(message.roots);
}
