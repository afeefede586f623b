/* SPDX-License-Identifier: Apache-2.0
 * Joining a new term together with all ranks: hello, one claim of the term by rank 0, the world, join. */
#include "client/client.h"

#include "base/failpoint.h"
#include "client/log_sink.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

static tck_status_t check_params(const tck_attach_params_t *params, struct error *err)
{
    if (params->struct_size < sizeof(*params)) {
        return error_set(err, TCK_ERR_INVAL, "struct_size of the parameters is %zu, %zu is needed", params->struct_size,
                         sizeof(*params));
    }
    if (params->world_size < 1 || (uint32_t)params->world_size > WORLD_RANKS_MAX || params->rank < 0 ||
        params->rank >= params->world_size) {
        return error_set(err, TCK_ERR_INVAL, "rank %d in a world of %d", params->rank, params->world_size);
    }
    if (params->world_size > 1 && params->oob.allgather == NULL) {
        return error_set(err, TCK_ERR_INVAL, "no allgather for a world of %d ranks", params->world_size);
    }
    return TCK_OK;
}

static tck_status_t open_session(struct tck_client *client, const tck_attach_params_t *params, struct error *err)
{
    struct config config;
    tck_status_t status = config_load(params->config_file, params->config_json, &config, err);

    if (status == TCK_OK) {
        status = session_open(&client->session, &config, client->oob.rank, client->oob.world_size, err);
    }
    if (status == TCK_OK) { /* the agent has made the directory of the log */
        log_sink_open(&config, client->oob.rank);
    }
    failpoint(attach, opened);
    return status;
}

static tck_status_t decode_hellos(const uint8_t *encoded, struct rank_hello *hellos, uint32_t count, struct error *err)
{
    for (uint32_t r = 0; r < count; r++) {
        struct reader reader = reader_of(encoded + r * RANK_HELLO_BYTES, RANK_HELLO_BYTES);
        hellos[r] = read_rank_hello(&reader);
        if (reader.failed) {
            return error_set(err, TCK_ERR_PROTO, "malformed hello of rank %u", r);
        }
    }
    return TCK_OK;
}

/* Exchanges the hellos of all ranks. status: of this rank so far; hellos has room for the world. */
static tck_status_t exchange_hellos(struct tck_client *client, tck_status_t status, struct rank_hello *hellos,
                                    struct error *err)
{
    uint32_t world_size = client->oob.world_size;
    uint8_t *all = malloc(world_size * RANK_HELLO_BYTES);
    uint8_t mine[RANK_HELLO_BYTES] = {0};
    struct writer w = writer_over(mine, sizeof(mine));

    if (status == TCK_OK && (all == NULL || hellos == NULL)) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for a world of %u ranks", world_size);
    }
    if (status == TCK_OK) {
        write_rank_hello(&w, &client->session.hello);
    }
    status = oob_exchange(&client->oob, status, mine, all, sizeof(mine), err);
    if (status == TCK_OK) {
        status = decode_hellos(all, hellos, world_size, err);
    }
    free(all);
    return status;
}

struct claim {
    struct session *session;
    struct msg_claim wanted;
    uint64_t term;
};

/* Harmless when repeated: no rank joins the term that was claimed before. */
static tck_status_t claim_step(void *ctx, struct error *err)
{
    struct claim *claim = ctx;

    return session_claim_term(claim->session, &claim->wanted, &claim->term, err);
}

/* Lists the agents of the world that is being formed, each once. */
static tck_status_t list_agents(const struct rank_hello *hellos, uint32_t world_size, struct msg_claim *claim,
                                struct error *err)
{
    struct world world;
    tck_status_t status = world_build(1, hellos, world_size, &world, err);

    if (status != TCK_OK) {
        return status;
    }
    claim->agents = calloc(world.node_count, sizeof(*claim->agents));
    if (claim->agents == NULL) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for %u agents", world.node_count);
    }
    for (uint32_t n = 0; status == TCK_OK && n < world.node_count; n++) {
        memcpy(claim->agents[n].node, world.nodes[n].name, sizeof(claim->agents[n].node));
        claim->agents[n].agent_id = world.nodes[n].agent_id;
        claim->count++;
    }
    world_free(&world);
    return status;
}

/* Claims a term above all terms that the ranks have seen. */
static tck_status_t claim_term(struct tck_client *client, const struct rank_hello *hellos, uint64_t *term_out,
                               struct error *err)
{
    struct claim claim = {.session = &client->session, .wanted = {.at_least = 1, .after = client->term}};
    tck_status_t status;

    for (uint32_t r = 0; r < client->oob.world_size; r++) {
        claim.wanted.at_least =
            hellos[r].term_seen >= claim.wanted.at_least ? hellos[r].term_seen + 1 : claim.wanted.at_least;
    }
    status = list_agents(hellos, client->oob.world_size, &claim.wanted, err);
    if (status == TCK_OK) {
        status = session_take_step(&client->session, false, claim_step, &claim, err);
    }
    free(claim.wanted.agents);
    if (status == TCK_OK) {
        *term_out = claim.term;
    }
    return status;
}

static tck_status_t join_step(void *ctx, struct error *err)
{
    return session_join(ctx, err);
}

/* Rank 0 claims the term and sends it to the others. */
static tck_status_t agree_on_term(struct tck_client *client, const struct rank_hello *hellos, uint64_t *term_out,
                                  struct error *err)
{
    uint32_t world_size = client->oob.world_size;
    uint64_t *terms = calloc(world_size, sizeof(*terms)), mine = 0;
    tck_status_t status = terms == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for %u terms", world_size) : TCK_OK;

    if (status == TCK_OK && client->oob.rank == 0) {
        status = claim_term(client, hellos, &mine, err);
        mine = htole64(mine);
        failpoint(attach, claimed);
    }
    status = oob_exchange(&client->oob, status, &mine, terms, sizeof(mine), err);
    if (status == TCK_OK) {
        client->term = *term_out = le64toh(terms[0]);
    }
    free(terms);
    return status;
}

static tck_status_t join_term(struct tck_client *client, const struct rank_hello *hellos, struct error *err)
{
    uint64_t term = 0;
    tck_status_t status = agree_on_term(client, hellos, &term, err);

    if (status != TCK_OK) {
        return status;
    }
    status = world_build(term, hellos, client->oob.world_size, &client->session.world, err);
    if (status == TCK_OK) {
        status = session_take_step(&client->session, false, join_step, &client->session, err);
    }
    failpoint(attach, joined);
    return oob_agree(&client->oob, status, err);
}

/* All ranks that have opened their sessions form a term. */
static tck_status_t form_term(struct tck_client *client, tck_status_t status, struct error *err)
{
    struct rank_hello *hellos = calloc(client->oob.world_size, sizeof(*hellos));

    status = exchange_hellos(client, status, hellos, err);
    if (status == TCK_OK) {
        status = join_term(client, hellos, err);
    }
    free(hellos);
    return status;
}

tck_status_t client_attach(struct tck_client *client, const tck_attach_params_t *params, struct error *err)
{
    bool opened;
    tck_status_t status = check_params(params, err);

    if (status == TCK_OK) {
        status = failpoints_read(err);
    }
    if (status != TCK_OK) {
        return status;
    }
    client->oob = (struct oob){params->oob, (uint32_t)params->rank, (uint32_t)params->world_size};
    status = open_session(client, params, err);
    opened = status == TCK_OK;
    status = form_term(client, status, err);
    if (status != TCK_OK && opened) {
        session_close(&client->session);
    }
    return status;
}

/* The old connection is closed last: an agent without connections may exit. */
tck_status_t client_attach_anew(struct tck_client *client, struct error *err)
{
    struct session old = client->session;
    tck_status_t status = session_open(&client->session, &old.config, client->oob.rank, client->oob.world_size, err);

    if (status != TCK_OK) {
        pthread_mutex_init(&client->session.lock, NULL); /* it has none of its own, and will be closed */
    }
    session_close(&old);
    return form_term(client, status, err);
}
