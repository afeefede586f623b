/* SPDX-License-Identifier: Apache-2.0
 * See roots.h. */
#include "client/roots.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>

tck_status_t roots_make(struct saver *saver, const struct msg_grant *grant, struct error *err)
{
    struct cuda *cuda = saver->plan->cuda;
    tck_status_t status = cuda_await_digests(cuda, err);
    uint32_t n = 0;

    for (uint32_t i = 0; i < saver->slots->count && status == TCK_OK; i++) {
        const struct shard_slots *shard = &saver->slots->shards[i];
        struct made_root *mine = &saver->plan->roots[i];

        mine->made = shard->segment.stored_here &&
                     cuda_root(cuda, saver->layout, i, slot_image(shard, grant->slots[n++]), &mine->root);
    }
    return status;
}

void roots_tell(struct saver *saver)
{
    struct msg_roots message = {.seq = session_seq(saver->session), .step = saver->step};
    struct writer w = writer_new(0);

    message.roots = calloc(saver->slots->count + (size_t)1, sizeof(*message.roots));
    for (uint32_t i = 0; i < saver->slots->count && message.roots != NULL; i++) {
        if (saver->plan->roots[i].made) {
            message.roots[message.count++] =
                (struct msg_root){saver->slots->shards[i].segment.shard, saver->plan->roots[i].root};
        }
    }
    if (message.count > 0) {
        msg_roots_encode(&message, &w);
        if (session_tell(saver->session, MSG_ROOTS, &w, NULL) != TCK_OK) {
            log_debug("the agent could not be told the roots of step %" PRIu64 ": it makes its own", saver->step);
        }
    }
    free(message.roots);
}
