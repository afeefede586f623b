/* SPDX-License-Identifier: Apache-2.0
 * Words the log lines of notices.h. */
#include "client/notices.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define INTERVAL_BYTES 48
#define SOURCES_BYTES  256

static void put_interval(char out[INTERVAL_BYTES], const struct interval *interval)
{
    if (interval->automatic) {
        snprintf(out, INTERVAL_BYTES, "as often as it pays");
    } else if (interval->steps > 0) {
        snprintf(out, INTERVAL_BYTES, "every %" PRIu64 " step%s", interval->steps, interval->steps == 1 ? "" : "s");
    } else if (interval->seconds > 0) {
        snprintf(out, INTERVAL_BYTES, "every %g s", interval->seconds);
    } else {
        snprintf(out, INTERVAL_BYTES, "only when asked");
    }
}

void notice_attached(const struct tck_client *client)
{
    const struct config *config = &client->session.config;
    const struct world *world = &client->session.world;
    char memory[INTERVAL_BYTES], storage[INTERVAL_BYTES];

    if (client->oob.rank != 0) {
        return;
    }
    put_interval(memory, &config->save_mem_interval);
    put_interval(storage, &config->save_storage_interval);
    log_info("attached to job %s, term %" PRIu64 ", %u rank%s on %u node%s; saving %s to memory, %s to %s", config->job,
             world->term, world->world_size, world->world_size == 1 ? "" : "s", world->node_count,
             world->node_count == 1 ? "" : "s", memory, storage, config->save_dir);
}

static void add_source(char out[SOURCES_BYTES], uint64_t bytes, const char *what, const char *whose)
{
    size_t len = strlen(out);

    if (bytes > 0) {
        snprintf(out + len, SOURCES_BYTES - len, "%s%s%s", len > 0 ? " and " : "", what, whose);
    }
}

void notice_restored(const struct tck_client *client, const tck_restored_t *restored)
{
    const struct world *world = &client->session.world;
    char sources[SOURCES_BYTES] = "", rank[24] = "";

    add_source(sources, restored->bytes_local, "memory of node ",
               world->nodes[world->node_of_rank[client->oob.rank]].name);
    add_source(sources, restored->bytes_twin, "the memory of a data-parallel twin", "");
    add_source(sources, restored->bytes_peer, "the copy on a peer node", "");
    add_source(sources, restored->bytes_storage, "storage", restored->resharded ? " in another layout" : "");
    if (world->world_size > 1) {
        snprintf(rank, sizeof(rank), "rank %u: ", client->oob.rank);
    }
    log_info("%srestored step %" PRIu64 " of term %" PRIu64 "%s%s, %.2f s", rank, restored->version.step,
             restored->version.term, sources[0] == '\0' ? "" : " from ", sources, restored->seconds);
}

/* The agents exit soon after the job is done, and their memory is freed with them. What is in the framework's own
 * format on storage only the adapter knows. */
static void report_unpublished(const struct tck_client *client)
{
    uint64_t committed = atomic_load(&client->session.shared->committed_step);
    uint64_t published = atomic_load(&client->session.shared->published_step);
    char newest[24] = "none";

    if (published > 0) {
        snprintf(newest, sizeof(newest), "%" PRIu64, published);
    }
    if (committed > published && client->session.config.storage_format != STORAGE_FORMAT_FRAMEWORK) {
        log_warn("the job is done, and step %" PRIu64 " is lost with the memory of its nodes (newest step of this run "
                 "on storage: %s); call save_last before the end "
                 "to keep it",
                 committed, newest);
    }
}

/* True if a step was to go to storage and did not reach it. */
static bool storage_refuses(const struct tck_client *client)
{
    struct trouble trouble;

    return trouble_look(&client->session.shared->storage_trouble, &trouble) && trouble.code != TCK_OK;
}

void notice_done(const struct tck_client *client)
{
    if (client->oob.rank != 0 || client->session.shared == NULL) {
        return;
    }
    if (client->last_failed || storage_refuses(client)) {
        log_warn(
            "the last step is not on storage: the agents keep what they have in memory for %u s. Start the job again "
            "to continue from there, or run `tierckpt drain`",
            client->session.config.linger_s);
    } else if (client->worker.begun_step > 0) {
        report_unpublished(client);
    }
}
