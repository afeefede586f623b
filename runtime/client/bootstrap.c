/* SPDX-License-Identifier: Apache-2.0
 * An allgather over a tree of TCP connections: blocks go up to rank 0, and all of them come down again. */
#include "client/bootstrap.h"

#include "base/clock.h"
#include "base/log.h"
#include "client/attach_error.h"
#include "client/bootstrap_shape.h"
#include "client/bootstrap_socket.h"

#include <endian.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MS  (30 * 60 * 1000)
#define PATIENCE_MS 60000 /* then the log says what is being waited for */
#define AGAIN_MS    100
#define NOBODY      UINT32_MAX
#define PREFIX_MAX  128
#define KEY_MAX     (PREFIX_MAX + 32)
#define PIECE_BYTES ((size_t)256 << 10) /* what comes down is passed on piece by piece */

struct tck_bootstrap {
    uint32_t rank, world_size;
    int timeout_ms;
    struct bootstrap_shape shape;
    int parent;                     /* -1: rank 0 has none, or it is closed */
    int children[BOOTSTRAP_FANOUT]; /* -1: not connected, or closed */
    uint64_t rounds;
    struct error failure; /* of the first allgather that failed; TCK_OK: none has */
};

/* Before each block, so that ranks which do not make the same calls find out. Little endian. */
struct block_head {
    uint64_t round, len;
};

/* ---- open ---------------------------------------------------------------------------------------------------- */

static tck_status_t check(const tck_bootstrap_params_t *params, struct error *err)
{
    if (params == NULL) {
        return error_set(err, TCK_ERR_INVAL, "no parameters");
    }
    if (params->struct_size < sizeof(*params)) {
        return error_set(err, TCK_ERR_INVAL, "struct_size of the parameters is %zu, %zu is needed", params->struct_size,
                         sizeof(*params));
    }
    if (params->world_size < 1 || params->rank < 0 || params->rank >= params->world_size) {
        return error_set(err, TCK_ERR_INVAL, "rank %d in a world of %d", params->rank, params->world_size);
    }
    if (params->world_size > 1 && (params->store.put == NULL || params->store.get == NULL)) {
        return error_set(err, TCK_ERR_INVAL, "no store in which the ranks find each other");
    }
    if (params->prefix != NULL && strlen(params->prefix) > PREFIX_MAX) {
        return error_set(err, TCK_ERR_INVAL, "the prefix of the keys has more than %d bytes", PREFIX_MAX);
    }
    return TCK_OK;
}

static void name_key(const tck_bootstrap_params_t *params, uint32_t rank, char key[KEY_MAX])
{
    snprintf(key, KEY_MAX, "%stierckpt.rank.%u", params->prefix == NULL ? "" : params->prefix, rank);
}

static uint32_t child_of(const struct bootstrap_shape *shape, uint32_t rank)
{
    uint32_t c = 0;

    while (c < shape->child_count && shape->children[c].first != rank) {
        c++;
    }
    return c;
}

/* A child that has not come yet. */
static uint32_t missing(const struct tck_bootstrap *b)
{
    uint32_t c = 0;

    while (c < b->shape.child_count && b->children[c] >= 0) {
        c++;
    }
    return c == b->shape.child_count ? NOBODY : b->shape.children[c].first;
}

static tck_status_t accept_child(struct tck_bootstrap *b, int listen_fd, const struct bootstrap_card *card,
                                 struct error *err)
{
    uint32_t rank = 0, c;
    int fd = -1;
    tck_status_t status = bootstrap_accept(listen_fd, card, clock_ms() + (uint64_t)b->timeout_ms, &rank, &fd, err);

    if (status != TCK_OK) {
        return error_prefix(err, "rank %u", missing(b));
    }
    c = child_of(&b->shape, rank);
    if (c < b->shape.child_count && b->children[c] >= 0 && bootstrap_is_closed(b->children[c])) {
        close(b->children[c]); /* it has begun again */
        b->children[c] = -1;
    }
    if (c == b->shape.child_count || b->children[c] >= 0) {
        close(fd);
        return error_set(err, TCK_ERR_PROTO, "rank %u has connected %s", rank,
                         c == b->shape.child_count ? "and should not have: do all ranks give the same world_size?"
                                                   : "twice: does each rank have its own number?");
    }
    b->children[c] = fd;
    return bootstrap_settle(fd, b->timeout_ms, err);
}

static tck_status_t put_card(const tck_bootstrap_params_t *params, const struct bootstrap_card *card, struct error *err)
{
    char key[KEY_MAX];

    name_key(params, (uint32_t)params->rank, key);
    if (params->store.put(params->store.ctx, key, card, sizeof(*card)) != 0) {
        return error_set(err, TCK_ERR_UNREACHABLE, "the store does not take the key %s", key);
    }
    return TCK_OK;
}

static tck_status_t get_card(const tck_bootstrap_params_t *params, uint32_t rank, struct bootstrap_card *out,
                             struct error *err)
{
    char key[KEY_MAX];
    size_t len = 0;

    name_key(params, rank, key);
    if (params->store.get(params->store.ctx, key, out, sizeof(*out), &len) != 0 || len != sizeof(*out)) {
        return error_set(err, TCK_ERR_UNREACHABLE, "the store does not return the key %s", key);
    }
    return TCK_OK;
}

/* The card may be that of an earlier bootstrap in the same store, which its rank will replace. */
static tck_status_t try_parent(struct tck_bootstrap *b, const tck_bootstrap_params_t *params, struct error *err)
{
    struct bootstrap_card card;
    tck_status_t status = get_card(params, b->shape.parent, &card, err);

    return status == TCK_OK ? bootstrap_connect(&card, b->rank, &b->parent, err) : status;
}

static tck_status_t connect_parent(struct tck_bootstrap *b, const tck_bootstrap_params_t *params, struct error *err)
{
    uint64_t began_ms = clock_ms(), until_ms = began_ms + (uint64_t)b->timeout_ms;
    bool warned = false;
    tck_status_t status = try_parent(b, params, err);

    while (status != TCK_OK && clock_ms() < until_ms) {
        if (!warned && clock_ms() - began_ms >= PATIENCE_MS) {
            log_warn("rank %u cannot connect to rank %u yet: %s", b->rank, b->shape.parent, err->text);
            warned = true;
        }
        poll(NULL, 0, AGAIN_MS);
        status = try_parent(b, params, err);
    }
    if (status == TCK_OK) {
        status = bootstrap_settle(b->parent, b->timeout_ms, err);
    }
    return status == TCK_OK ? TCK_OK : error_prefix(err, "rank %u", b->shape.parent);
}

static tck_status_t connect_children(struct tck_bootstrap *b, const tck_bootstrap_params_t *params, struct error *err)
{
    struct bootstrap_card card = {.port = 0};
    int listen_fd = -1;
    tck_status_t status = bootstrap_listen(params->address, BOOTSTRAP_FANOUT, &listen_fd, &card, err);

    if (status != TCK_OK) {
        return status;
    }
    status = put_card(params, &card, err);
    while (status == TCK_OK && missing(b) != NOBODY) {
        status = accept_child(b, listen_fd, &card, err);
    }
    close(listen_fd);
    return status;
}

/* NULL: no memory. */
static struct tck_bootstrap *new_bootstrap(const tck_bootstrap_params_t *params, struct error *err)
{
    struct tck_bootstrap *b = calloc(1, sizeof(*b));

    if (b == NULL) {
        (void)error_set(err, TCK_ERR_NOMEM, "no memory for a bootstrap");
        return NULL;
    }
    b->rank = (uint32_t)params->rank;
    b->world_size = (uint32_t)params->world_size;
    b->timeout_ms = params->timeout_ms > 0 ? params->timeout_ms : TIMEOUT_MS;
    b->shape = bootstrap_shape(b->rank, b->world_size);
    b->parent = -1;
    memset(b->children, -1, sizeof(b->children));
    return b;
}

tck_status_t tck_bootstrap_open(const tck_bootstrap_params_t *params, tck_bootstrap_t **bootstrap_out)
{
    tck_status_t status = check(params, &attach_error);
    struct tck_bootstrap *b;

    if (status == TCK_OK && bootstrap_out == NULL) {
        status = error_set(&attach_error, TCK_ERR_INVAL, "no place for the bootstrap");
    }
    b = status == TCK_OK ? new_bootstrap(params, &attach_error) : NULL;
    if (b == NULL) {
        return attach_error.code;
    }
    if (b->shape.child_count > 0) { /* first, since they wait for the answer of a rank that listens */
        status = connect_children(b, params, &attach_error);
    }
    if (status == TCK_OK && b->rank > 0) {
        status = connect_parent(b, params, &attach_error);
    }
    if (status != TCK_OK) {
        tck_bootstrap_close(b);
        return error_prefix(&attach_error, "rank %d cannot connect to the other ranks", params->rank);
    }
    *bootstrap_out = b;
    return TCK_OK;
}

/* ---- allgather ----------------------------------------------------------------------------------------------- */

static void close_all(struct tck_bootstrap *b)
{
    if (b->parent >= 0) {
        close(b->parent);
    }
    for (uint32_t c = 0; c < BOOTSTRAP_FANOUT; c++) {
        if (b->children[c] >= 0) {
            close(b->children[c]);
        }
    }
    b->parent = -1;
    memset(b->children, -1, sizeof(b->children));
}

static tck_status_t check_head(const struct block_head *head, uint64_t round, size_t len, struct error *err)
{
    if (le64toh(head->round) != round || le64toh(head->len) != len) {
        return error_set(err, TCK_ERR_PROTO,
                         "its exchange %" PRIu64 " has %" PRIu64 " bytes, and this one's %" PRIu64
                         " has %zu: the ranks do not make the same calls",
                         le64toh(head->round), le64toh(head->len), round, len);
    }
    return TCK_OK;
}

/* The blocks of the child's subtree. */
static tck_status_t receive_subtree(struct tck_bootstrap *b, uint32_t c, uint8_t *out, size_t len, struct error *err)
{
    struct rank_range of = b->shape.children[c];
    struct block_head head;
    tck_status_t status = bootstrap_receive(b->children[c], &head, sizeof(head), err);

    if (status == TCK_OK) {
        status = check_head(&head, b->rounds, len, err);
    }
    if (status == TCK_OK) {
        status = bootstrap_receive(b->children[c], out + of.first * len, (of.end - of.first) * len, err);
    }
    return status == TCK_OK ? TCK_OK : error_prefix(err, "rank %u", of.first);
}

static tck_status_t send_subtree(struct tck_bootstrap *b, const uint8_t *out, size_t len, struct error *err)
{
    struct block_head head = {htole64(b->rounds), htole64(len)};
    struct rank_range own = b->shape.subtree;
    tck_status_t status = bootstrap_send(b->parent, &head, sizeof(head), err);

    if (status == TCK_OK) {
        status = bootstrap_send(b->parent, out + own.first * len, (own.end - own.first) * len, err);
    }
    return status == TCK_OK ? TCK_OK : error_prefix(err, "rank %u", b->shape.parent);
}

static tck_status_t gather(struct tck_bootstrap *b, uint8_t *out, size_t len, struct error *err)
{
    tck_status_t status = TCK_OK;

    for (uint32_t c = 0; status == TCK_OK && c < b->shape.child_count; c++) {
        status = receive_subtree(b, c, out, len, err);
    }
    if (status == TCK_OK && b->rank > 0) {
        status = send_subtree(b, out, len, err);
    }
    return status;
}

static tck_status_t pass_down(struct tck_bootstrap *b, const uint8_t *piece, size_t bytes, struct error *err)
{
    for (uint32_t c = 0; c < b->shape.child_count; c++) {
        if (bootstrap_send(b->children[c], piece, bytes, err) != TCK_OK) {
            return error_prefix(err, "rank %u", b->shape.children[c].first);
        }
    }
    return TCK_OK;
}

static tck_status_t spread(struct tck_bootstrap *b, uint8_t *out, size_t len, struct error *err)
{
    size_t total = b->world_size * len;
    tck_status_t status = TCK_OK;

    for (size_t done = 0; status == TCK_OK && done < total; done += PIECE_BYTES) {
        size_t bytes = total - done < PIECE_BYTES ? total - done : PIECE_BYTES;

        if (b->rank > 0) {
            status = bootstrap_receive(b->parent, out + done, bytes, err);
        }
        if (status != TCK_OK) {
            return error_prefix(err, "rank %u", b->shape.parent);
        }
        status = pass_down(b, out + done, bytes, err);
    }
    return status;
}

/* A failure closes all connections, so that it reaches every rank. */
static int bootstrap_allgather(void *ctx, const void *in, void *out, size_t len)
{
    struct tck_bootstrap *b = ctx;

    if (b->failure.code == TCK_OK && len > 0) {
        memcpy((uint8_t *)out + b->rank * len, in, len);
        b->rounds++;
        if (gather(b, out, len, &b->failure) != TCK_OK || spread(b, out, len, &b->failure) != TCK_OK) {
            close_all(b);
        }
    }
    if (b->failure.code != TCK_OK) {
        attach_error = b->failure;
    }
    return b->failure.code;
}

tck_oob_t tck_bootstrap_oob(tck_bootstrap_t *bootstrap)
{
    return (tck_oob_t){.allgather = bootstrap_allgather, .ctx = bootstrap};
}

const struct error *bootstrap_failure(const tck_oob_t *oob)
{
    return oob->allgather == bootstrap_allgather ? &((const struct tck_bootstrap *)oob->ctx)->failure : NULL;
}

void tck_bootstrap_close(tck_bootstrap_t *bootstrap)
{
    if (bootstrap != NULL) {
        close_all(bootstrap);
        free(bootstrap);
    }
}
