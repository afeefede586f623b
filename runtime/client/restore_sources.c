/* SPDX-License-Identifier: Apache-2.0
 * The images of one restore: slots, and images received from other ranks. */
#include "client/restore_sources.h"

#include "base/digest.h"

#include <stdlib.h>

#define SLOW_BYTES 100000 /* per ms: the rate of a rank that forwards shards over 1 Gbit/s */

enum restore_spread restore_sources_wanted(const struct tck_client *client)
{
    return client->oob.world_size > 1 ? client->session.config.restore_spread : SPREAD_AGENTS;
}

static struct spread_run run_of(const struct tck_client *client, const struct spread_ops *ops)
{
    return (struct spread_run){.oob = &client->oob,
                               .world = &client->session.world,
                               .ops = ops,
                               .timeout_ms = client->session.config.restore_spread_timeout_ms,
                               .slow_bytes = SLOW_BYTES};
}

static void free_arrays(struct restore_sources *gather)
{
    free(gather->own.roots);
    free(gather->own.images);
    free(gather->own.came);
    free(gather->crcs);
    *gather = (struct restore_sources){0};
}

/* The root identifies the version's bytes, so CRCs that match it are those of the bytes that were saved. */
static tck_status_t take_slots(const struct tck_client *client, const struct msg_restored *offer,
                               struct restore_sources *gather, struct error *err)
{
    const uint32_t *crcs = offer->crcs;

    for (uint32_t i = 0; i < offer->count; i++) {
        const struct shard *shard = &client->layout.shards[i];

        if (offer->shards[i].slot == NONE32) {
            continue;
        }
        if (!hash128_is(digest_root(crcs, shard->image_bytes), offer->shards[i].root)) {
            return error_set(err, TCK_ERR_CORRUPT,
                             "the digests of the shard of group \"%.200s\" were damaged in this node's memory",
                             shard->group);
        }
        gather->own.roots[i] = offer->shards[i].root;
        gather->own.images[i] = slot_image(&client->slots.shards[i], offer->shards[i].slot);
        gather->crcs[i] = crcs;
        crcs += chunk_count(shard->image_bytes);
    }
    return TCK_OK;
}

tck_status_t restore_sources_begin(const struct tck_client *client, const struct msg_restored *offer,
                                   struct restore_sources *out, struct error *err)
{
    size_t room = offer->count + (size_t)1;
    struct restore_sources gather = {.own = {.count = offer->count,
                                             .roots = calloc(room, sizeof(*gather.own.roots)),
                                             .images = calloc(room, sizeof(*gather.own.images)),
                                             .came = calloc(room, sizeof(*gather.own.came))},
                                     .crcs = calloc(room, sizeof(*gather.crcs))};
    tck_status_t status = TCK_OK;

    if (gather.own.roots == NULL || gather.own.images == NULL || gather.own.came == NULL || gather.crcs == NULL) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory to restore %u shards", offer->count);
    }
    if (status == TCK_OK) {
        status = take_slots(client, offer, &gather, err);
    }
    if (status != TCK_OK) {
        free_arrays(&gather);
        return status;
    }
    *out = gather;
    return TCK_OK;
}

/* Succeeds on every rank or on none. */
static tck_status_t find_way(const struct tck_client *client, enum restore_spread spread, const struct spread_ops **out,
                             struct error *err)
{
    if (spread == SPREAD_OOB) {
        *out = &spread_oob;
        return TCK_OK;
    }
    return oob_agree(&client->oob, spread_nccl(out, err), err);
}

tck_status_t restore_sources_spread(struct tck_client *client, enum restore_spread spread,
                                    struct restore_sources *gather, struct error *err)
{
    const struct spread_ops *ops = NULL;
    tck_status_t status = find_way(client, spread, &ops, err);
    struct spread_run run;

    if (status != TCK_OK) {
        return status;
    }
    run = run_of(client, ops);
    return spread_run(&run, &gather->own, err);
}

void restore_sources_free(struct tck_client *client, struct restore_sources *gather)
{
    struct spread_run run = run_of(client, NULL);

    spread_forget(&run, &gather->own);
    free_arrays(gather);
}
