/* SPDX-License-Identifier: Apache-2.0
 * Transfers between memory and storage, which fail for a host that is cut off from storage; and manifests. */
#include "sim.h"

#include "tiers/manifest.h"
#include "tiers/uring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- transfers (tiers/uring.h) ----------------------------------------------------------------------------------- */

struct moving {
    struct moving *next;
    struct uring *uring;
    struct uring_transfer ask;
    uint64_t moved; /* bytes, of one that has its parts in several places */
    bool ended;
};

struct uring {
    struct host *host;
    struct moving *moving;
};

tck_status_t uring_new(struct loop *loop, struct pool *pool, enum uring_way way, struct uring **out, struct error *err)
{
    (void)loop;
    (void)pool;
    (void)way;
    (void)err;
    *out = calloc(1, sizeof(**out));
    (*out)->host = sim.current;
    return TCK_OK;
}

/* Reads a part where the transfer wants it. False: it has to wait. */
static bool move_part(struct moving *m, struct error *err)
{
    const struct uring_transfer *ask = &m->ask;
    uint64_t left = ask->bytes - m->moved, len = left < URING_PART_BYTES ? left : URING_PART_BYTES;
    enum uring_turn turn = ask->take(ask->ctx, len);
    if (turn != URING_GOES) {
        if (turn == URING_STOPS) {
            (void)error_set(err, TCK_ERR_CANCELED, "%s: given up", ask->name);
        }
        return turn == URING_STOPS;
    }
    uint32_t i = (uint32_t)(m->moved / URING_PART_BYTES);
    if (pread(ask->fd, ask->place(ask->ctx, i), len, (off_t)m->moved) != (ssize_t)len || storage_refuses(ask->fd)) {
        (void)error_set(err, TCK_ERR_IO, "%s: %m", ask->name);
        return true;
    }
    m->moved += len;
    ask->part(ask->ctx, i);
    return true;
}

static tck_status_t move(const struct uring_transfer *ask, struct error *err)
{
    ssize_t n = ask->direction == URING_READ ? pread(ask->fd, ask->data, ask->bytes, 0)
                                             : pwrite(ask->fd, ask->data, ask->bytes, 0);
    if (storage_refuses(ask->fd) || n < 0) {
        return error_set(err, status_of_errno(errno), "%s: %m", ask->name);
    }
    if (ask->direction == URING_WRITE && fdatasync(ask->fd) < 0) {
        return error_set(err, TCK_ERR_IO, "%s: fdatasync: %m", ask->name);
    }
    return (uint64_t)n < ask->bytes ? error_set(err, TCK_ERR_CORRUPT, "%s: it is shorter", ask->name) : TCK_OK;
}

static void on_moved(void *ctx)
{
    struct moving *m = ctx;
    struct error outcome = {.code = TCK_OK};
    if (m->ended) {
        return;
    }
    if (m->uring->host->hangs_until_us[AT_SAVE_DIR] > sim.us) {
        sim_after(m->uring->host->hangs_until_us[AT_SAVE_DIR] - sim.us, m->uring->host, on_moved, m);
        return;
    }
    while (m->ask.place != NULL && m->moved < m->ask.bytes && outcome.code == TCK_OK) {
        if (!move_part(m, &outcome)) {
            sim_after(MS, m->uring->host, on_moved, m);
            return;
        }
    }
    m->ended = true;
    slot_use_end(m);
    m->uring->host->counts.stored += m->ask.bytes;
    tck_status_t status = m->ask.place != NULL ? outcome.code : move(&m->ask, &outcome);
    for (uint64_t i = 0;
         m->ask.place == NULL && status == TCK_OK && m->ask.part != NULL && i * URING_PART_BYTES < m->ask.bytes; i++) {
        m->ask.part(m->ask.ctx, (uint32_t)i);
    }
    m->ask.done(m->ask.ctx, &outcome);
}

tck_status_t uring_start(struct uring *uring, const struct uring_transfer *transfer, struct error *err)
{
    (void)err;
    host_does_something();
    struct moving *m = calloc(1, sizeof(*m));
    *m = (struct moving){.next = uring->moving, .uring = uring, .ask = *transfer};
    uring->moving = m;
    if (transfer->direction == URING_READ && transfer->data != NULL) {
        slot_use_begin(m, transfer->data, "a read from storage still writes into it", uring->host);
    }
    sim_after(sim_trait(TRAIT_SLOW_DRAINS) ? sim_between(10, 400) * MS : sim_between(50, 3000), uring->host, on_moved,
              m);
    return TCK_OK;
}

/* What is written here is too small to be throttled. */
void uring_resume(struct uring *uring)
{
    (void)uring;
}

void uring_free(struct uring *uring)
{
    struct error outcome;
    (void)error_set(&outcome, TCK_ERR_CANCELED, "transfers are canceled");
    for (struct moving *m = uring != NULL ? uring->moving : NULL; m != NULL; m = m->next) {
        if (!m->ended) {
            m->ended = true;
            slot_use_end(m);
            m->ask.done(m->ask.ctx, &outcome);
        }
    }
}

/* ---- manifests (tiers/manifest.h) -------------------------------------------------------------------------------- */

/* A cache of parsed manifests: agents read the same manifest repeatedly, which would take a fifth of the time of a
 * schedule. Each reader is charged the cost of the first one. */
struct parsed {
    struct parsed *next;
    struct manifest manifest;
    uint64_t ns;
    size_t len;
    char text[];
};

tck_status_t __real_manifest_parse(const char *text, size_t len, struct manifest *out, struct error *err);
tck_status_t __wrap_manifest_parse(const char *text, size_t len, struct manifest *out, struct error *err);

static void *copy_of(const void *from, size_t bytes)
{
    void *to = malloc(bytes);
    if (to == NULL) {
        abort();
    }
    memcpy(to, from, bytes);
    return to;
}

static struct manifest manifest_copy(const struct manifest *from)
{
    struct manifest to = *from;
    to.files = copy_of(from->files, from->file_count * sizeof(*from->files));
    for (uint32_t i = 0; i < from->file_count; i++) {
        const struct manifest_file *file = &from->files[i];
        to.files[i].crcs = copy_of(file->crcs, chunk_count(file->bytes) * sizeof(*file->crcs));
    }
    return to;
}

tck_status_t __wrap_manifest_parse(const char *text, size_t len, struct manifest *out, struct error *err)
{
    static struct parsed *all;
    uint64_t began = sim.measure ? processor_ns() : 0;
    for (struct parsed **at = &all; *at != NULL; at = &(*at)->next) {
        struct parsed *parsed = *at;
        if (parsed->len == len && memcmp(parsed->text, text, len) == 0) {
            *at = parsed->next;
            parsed->next = all; /* moved to the front, because it will soon be read again */
            all = parsed;
            *out = manifest_copy(&parsed->manifest);
            if (sim.measure) {
                sim.current->counts.ns += parsed->ns - (processor_ns() - began);
            }
            return TCK_OK;
        }
    }
    tck_status_t status = __real_manifest_parse(text, len, out, err);
    uint64_t ns = sim.measure ? processor_ns() - began : 0;
    if (status == TCK_OK) {
        struct parsed *parsed = malloc(sizeof(*parsed) + len);
        if (parsed == NULL) {
            abort();
        }
        *parsed = (struct parsed){.next = all, .manifest = manifest_copy(out), .ns = ns, .len = len};
        memcpy(parsed->text, text, len);
        all = parsed;
    }
    return status;
}
