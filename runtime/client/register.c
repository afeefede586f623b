/* SPDX-License-Identifier: Apache-2.0
 * Registration: the record table becomes shards, all ranks learn of all shards, the agent gives the memory, and
 * everything that a step needs is made ready. */
#include "client/client.h"
#include "client/notices.h"
#include "client/rank_processors.h"

#include "base/cpus.h"
#include "base/failpoint.h"
#include "base/processors.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INFO_BYTES (16 + 8 + 1) /* one shard in the exchange */

/* ---- what each rank tells of its shards ---------------------------------------------------------------------- */

static tck_status_t encode_infos(const struct layout *layout, uint8_t *out, size_t len)
{
    struct writer w = writer_new(0);
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < layout->shard_count; i++) {
        write_hash128(&w, layout->shards[i].id);
        write_u64(&w, layout->shards[i].image_bytes);
        write_u8(&w, layout->shards[i].group[0] == '\0');
    }
    if (w.failed || w.len > len) {
        status = TCK_ERR_NOMEM;
    } else if (w.len > 0) {
        memcpy(out, w.data, w.len);
    }
    writer_free(&w);
    return status;
}

/* all holds `most` infos per rank; the first counts[r] of rank r are valid. */
static void decode_infos(const uint8_t *all, const uint32_t *counts, uint32_t world_size, uint32_t most,
                         struct shard_info *out)
{
    for (uint32_t r = 0; r < world_size; r++) {
        struct reader reader = reader_of(all + (size_t)r * most * INFO_BYTES, (size_t)most * INFO_BYTES);

        for (uint32_t i = 0; i < counts[r]; i++) {
            *out = (struct shard_info){.id = read_hash128(&reader)};
            out->image_bytes = read_u64(&reader);
            out->private_to_rank = read_u8(&reader);
            out++;
        }
    }
}

/* Gathers the shards of all ranks into the world. */
static tck_status_t exchange_infos(struct tck_client *client, const uint32_t *counts, uint32_t most, uint64_t total,
                                   struct error *err)
{
    size_t len = (size_t)most * INFO_BYTES;
    uint8_t *mine = calloc(1, len + 1), *all = calloc(client->oob.world_size, len + 1);
    struct shard_info *infos = calloc(total + 1, sizeof(*infos));
    tck_status_t status = TCK_OK;

    if (mine == NULL || all == NULL || infos == NULL || encode_infos(&client->layout, mine, len) != TCK_OK) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for the shards of all ranks");
    }
    status = oob_exchange(&client->oob, status, mine, all, len, err);
    if (status == TCK_OK) {
        decode_infos(all, counts, client->oob.world_size, most, infos);
        status = world_add_shards(&client->session.world, infos, counts, err);
    }
    free(infos);
    free(all);
    free(mine);
    return status;
}

/* status: of this rank's layout. */
static tck_status_t exchange_shards(struct tck_client *client, tck_status_t status, struct error *err)
{
    uint32_t world_size = client->oob.world_size, mine = htole32(client->layout.shard_count), most = 0;
    uint32_t *counts = calloc(world_size, sizeof(*counts));
    uint64_t total = 0;

    if (status == TCK_OK && counts == NULL) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for %u ranks", world_size);
    }
    status = oob_exchange(&client->oob, status, &mine, counts, sizeof(mine), err);
    for (uint32_t r = 0; r < world_size && status == TCK_OK; r++) {
        counts[r] = le32toh(counts[r]);
        most = counts[r] > most ? counts[r] : most;
        total += counts[r];
        if (counts[r] > MESSAGE_SHARDS_MAX) {
            status = error_set(err, TCK_ERR_PROTO, "rank %u reports %u shards, which cannot be", r, counts[r]);
        }
    }
    if (status == TCK_OK) {
        status = exchange_infos(client, counts, most, total, err);
    }
    free(counts);
    return status;
}

/* ---- what this rank needs for its steps ---------------------------------------------------------------------- */

static tck_status_t build_layout(struct tck_client *client, struct error *err)
{
    tck_status_t status = layout_build(&client->layout, client->oob.rank, client->oob.world_size, err);

    if (status == TCK_OK && client->layout.shard_count > MESSAGE_SHARDS_MAX) {
        status =
            error_set(err, TCK_ERR_INVAL, "the records make %u shards, at most %d are allowed; give them fewer groups",
                      client->layout.shard_count, MESSAGE_SHARDS_MAX);
    }
    return status;
}

static void measure_memory(struct tck_client *client)
{
    client->segment_bytes = 0;
    for (uint32_t i = 0; i < client->slots.count; i++) {
        const struct shard_slots *shard = &client->slots.shards[i];

        if (shard->segment.stored_here) {
            client->segment_bytes += shard->bytes;
            client->page_bytes = shard->segment.page_bytes;
        }
    }
}

static tck_status_t memory_step(void *ctx, struct error *err)
{
    struct tck_client *client = ctx;
    struct msg_segments segments;
    tck_status_t status = session_register(&client->session, &segments, err);

    client->slots.pins = devices_pins(&client->devices);
    return status == TCK_OK ? slots_adopt(&client->slots, &client->session, &client->layout, &segments, err) : status;
}

static tck_status_t get_memory(struct tck_client *client, struct error *err)
{
    tck_status_t status = session_take_step(&client->session, true, memory_step, client, err);

    failpoint(enrol, mapped);
    if (status == TCK_OK) {
        measure_memory(client);
    }
    return status;
}

static struct rank_processors own_processors(const struct tck_client *client)
{
    const struct world *world = &client->session.world;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    struct cpus bound = cpus_of_process(0);
    struct rank_processors own = {
        .bound = cpus_count(&bound), .online = online > 0 ? (uint32_t)online : 1, .quota = processors_quota("")};

    for (uint32_t r = 0; r < world->world_size; r++) {
        own.ranks += world->node_of_rank[r] == world->node_of_rank[client->oob.rank];
    }
    return own;
}

static struct copy_threads copy_threads(const struct tck_client *client)
{
    uint32_t configured = client->session.config.copy_threads;

    if (configured > 0) {
        return (struct copy_threads){configured, configured};
    }
    struct rank_processors own = own_processors(client);

    return copy_threads_for(&own);
}

static tck_status_t make_ready(struct tck_client *client, struct error *err)
{
    tck_status_t status = get_memory(client, err);

    if (status == TCK_OK && client->copier == NULL) {
        status = copier_new(copy_threads(client), &client->copier, err);
    }
    client->devices.copier = client->copier;
    if (status == TCK_OK) {
        const struct device_setup setup = {.layout = &client->layout,
                                           .copier = client->copier,
                                           .wants_digests = client->session.config.digest == DIGEST_DEVICE};

        status = devices_prepare(&client->devices, &setup, err);
    }
    if (status == TCK_OK) {
        atomic_store(&client->session.connected, true);
        status =
            worker_start(&client->worker, &client->session, &client->layout, &client->slots, &client->devices, err);
        client->worker.confirms = client->confirms;
    }
    return status;
}

/* Registers collectively. status: of this rank so far. */
static tck_status_t register_with_all(struct tck_client *client, tck_status_t status, struct error *err)
{
    client->state = CLIENT_FAILED;
    activity_phase(&client->activity, WAITS_FOR_RANKS, 0);
    status = exchange_shards(client, status, err);
    failpoint(enrol, exchanged);
    if (status == TCK_OK) {
        activity_of_agent(&client->activity, "allocating memory", client->session.shared);
        status = make_ready(client, err);
        activity_phase(&client->activity, WAITS_FOR_RANKS, 0);
        status = oob_agree(&client->oob, status, err);
    }
    if (status == TCK_OK) {
        client->state = CLIENT_REGISTERED;
    }
    return status;
}

tck_status_t client_register(struct tck_client *client, struct error *err)
{
    tck_status_t status = register_with_all(client, build_layout(client, err), err);

    if (status == TCK_OK) {
        notice_attached(client);
    }
    return status;
}

tck_status_t client_begin_term(struct tck_client *client, bool to_restore, struct error *err)
{
    struct save_counts counts;
    tck_status_t status;

    activity_phase(&client->activity, "beginning a term", 0);
    worker_stop(&client->worker);
    counts = client->worker.counts;
    client->state = CLIENT_FAILED;
    client->asked = false;
    client->refused = (struct refused_steps){0};
    status = client_attach_anew(client, err);
    client->session.will_ask = to_restore;
    if (status == TCK_OK) {
        status = register_with_all(client, TCK_OK, err);
    }
    client->worker.counts = counts;
    return status;
}
