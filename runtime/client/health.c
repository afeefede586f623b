/* SPDX-License-Identifier: Apache-2.0
 * What this rank knows about the state of its job: from the shared status and from its snapshot worker, without
 * asking the agent. */
#include "client/client.h"
#include "client/snapshot_outcome.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The shared status exists from attach on and the snapshot worker from register on; before that there is nothing to
 * report. */
static void fill_agent(struct tck_client *client, tck_health_t *out)
{
    struct snapshot_worker *worker = &client->worker;
    const struct error *abandoned = NULL;

    if (worker->running) {
        pthread_mutex_lock(&worker->lock);
        out->agent_connected = atomic_load(&worker->session->connected);
        abandoned = worker_abandoned(worker);
        pthread_mutex_unlock(&worker->lock);
    } else { /* no other thread writes `cut` */
        out->agent_connected = client->session.shared != NULL && !client->session.cut;
    }
    if (!out->agent_connected) {
        snprintf(out->agent_text, sizeof(out->agent_text), "%s",
                 abandoned != NULL ? abandoned->text
                                   : "this node's agent does not answer: nothing is saved until it is back");
    }
}

static void fill_storage(struct shared_status *shared, tck_health_t *out)
{
    struct trouble trouble;

    if (!trouble_look(&shared->storage_trouble, &trouble) || trouble.code == TCK_OK) {
        return;
    }
    out->storage = (tck_status_t)trouble.code;
    out->storage_since_ms = trouble.since_ms;
    out->undrained_first = trouble.first_step;
    out->undrained_newest = trouble.newest_step;
    out->undrained_count = trouble.steps;
    snprintf(out->storage_text, sizeof(out->storage_text), "%s", trouble.text);
}

/* Reports the gravest problem. */
static void fill_protection(const struct tck_client *client, tck_health_t *out)
{
    const struct shared_status *shared = client->session.shared;
    const struct world *world = &client->session.world;
    uint64_t lost = atomic_load(&shared->lost_node);

    out->shards_short = atomic_load(&shared->shards_short);
    out->copies_missing = atomic_load(&shared->copies_missing);
    if (lost > 0 && lost <= world->node_count) {
        out->node_lost = 1;
        snprintf(out->protection_text, sizeof(out->protection_text),
                 "node %s is lost: nothing commits until it is back or the job is restarted",
                 world->nodes[lost - 1].name);
    } else if (out->copies_missing > 0) {
        snprintf(out->protection_text, sizeof(out->protection_text),
                 "%" PRIu64 " copies of the committed version are missing on this node; they are fetched again",
                 out->copies_missing);
    } else if (out->shards_short > 0) {
        snprintf(out->protection_text, sizeof(out->protection_text),
                 "%" PRIu64 " shards have fewer than %u copies in distinct domains: there are too few nodes or domains",
                 out->shards_short, client->session.config.copies);
    }
}

void client_health(struct tck_client *client, tck_health_t *out)
{
    *out = (tck_health_t){.struct_size = out->struct_size, .records_torn = client->torn};
    fill_agent(client, out);
    if (client->session.shared != NULL) {
        fill_storage(client->session.shared, out);
        fill_protection(client, out);
    }
}

const char *client_storage_text(const struct tck_client *client, char text[TCK_HEALTH_TEXT])
{
    tck_health_t health = {.struct_size = sizeof(health)};

    if (client->session.shared != NULL) {
        fill_storage(client->session.shared, &health);
    }
    snprintf(text, TCK_HEALTH_TEXT, "%s", health.storage_text);
    return text;
}
