/* SPDX-License-Identifier: Apache-2.0
 * See roots.h. */
#include "client/device_digests.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>

tck_status_t device_digests_make(struct save_plan *plan, const struct slots *slots, const struct layout *layout,
                                 const struct msg_grant *grant, struct error *err)
{
    struct cuda *cuda = plan->cuda;
    tck_status_t status = cuda_await_digests(cuda, err);
    uint32_t n = 0;

    for (uint32_t i = 0; i < slots->count && status == TCK_OK; i++) {
        const struct shard_slots *shard = &slots->shards[i];
        struct made_root *mine = &plan->roots[i];

        mine->made =
            shard->segment.stored_here && cuda_root(cuda, layout, i, slot_image(shard, grant->slots[n++]), &mine->root);
    }
    return status;
}

void device_digests_send(struct session *session, const struct save_plan *plan, const struct slots *slots,
                         uint64_t step)
{
    struct msg_roots message = {.seq = session_seq(session), .step = step};
    struct writer w = writer_new(0);

    message.roots = calloc(slots->count + (size_t)1, sizeof(*message.roots));
    for (uint32_t i = 0; i < slots->count && message.roots != NULL; i++) {
        if (plan->roots[i].made) {
            message.roots[message.count++] = (struct msg_root){slots->shards[i].segment.shard, plan->roots[i].root};
        }
    }
    if (message.count > 0) {
        msg_roots_encode(&message, &w);
        if (session_post(session, MSG_ROOTS, &w, NULL) != TCK_OK) {
            log_debug("the agent could not be told the roots of step %" PRIu64 ": it makes its own", step);
        }
    }
    free(message.roots);
}
