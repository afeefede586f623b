/* SPDX-License-Identifier: Apache-2.0
 * See clone_put.h. */
#include "tiers/clone_put.h"

#include "base/log.h"
#include "base/same_chunks.h"
#include "tiers/clone_file.h"
#include "tiers/persistent_dir.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct clone_put {
    struct tier_item item;
    struct clone_past *past;       /* taken from the tier's list */
    struct clone_base *written;    /* the file of this put; owned until it is added to past */
    const struct clone_base *base; /* of past: that the file shares blocks with; NULL: none */
    uint32_t one_in;               /* storage_clone */
    bool tries;                    /* whether the file system can is not known yet, */
    bool tried;                    /* and was tried */
    bool digested, named;
    uint64_t bytes;       /* shared */
    struct error outcome; /* of sharing: why it does not work here, or has not; TCK_OK: nothing is known against it */
    uint8_t bits[];
};

/* ---- in the loop's thread -------------------------------------------------------------------------------------- */

static bool may_share(const struct persistent *p)
{
    return p->job.fd >= 0 && p->config->storage_clone > 1 && p->config->storage_verify == SWITCH_ON;
}

enum clones_state persistent_clones(const struct persistent *p, const char **why_out)
{
    *why_out = may_share(p) && p->clones.why.code != TCK_OK ? p->clones.why.text : "";
    return may_share(p) ? p->clones.state : CLONES_OFF;
}

struct clone_put *clone_put_begin(struct persistent *p, const struct tier_item *item)
{
    const char *ignored;
    enum clones_state state = persistent_clones(p, &ignored);
    if (state == CLONES_OFF || state == CLONES_REFUSED) {
        return NULL;
    }
    struct clone_put *c = calloc(1, sizeof(*c) + bits_bytes(chunk_count(item->image_bytes)));
    struct clone_base *written = clone_base_new(item->version, item->image_bytes, item->crcs);
    struct clone_past *past = c != NULL && written != NULL ? clone_past_take(&p->clones.past, item->shard) : NULL;
    if (past == NULL) {
        free(c);
        free(written);
        return NULL;
    }
    c->item = *item;
    c->past = past;
    c->written = written;
    c->one_in = p->config->storage_clone;
    c->tries = state == CLONES_UNKNOWN;
    return c;
}

static void log_not_shared(const struct clone_put *c, enum clones_state state)
{
    if (state == CLONES_REFUSED) {
        log_info("save_dir: every version is written as a whole: %s", c->outcome.text);
    } else {
        log_info("save_dir: version %" PRIu64 ".%" PRIu64 " is written as a whole, at least in part: %s",
                 c->item.version.term, c->item.version.step, c->outcome.text);
    }
}

/* What was found out is logged when it changes. */
static void note_outcome(struct clones *to, const struct clone_put *c)
{
    bool works = c->outcome.code == TCK_OK;
    enum clones_state state = works                                                ? CLONES_WORK
                              : c->tried && c->outcome.code == TCK_ERR_UNSUPPORTED ? CLONES_REFUSED
                                                                                   : to->state;
    if (works && !c->tried && c->bytes == 0) {
        return; /* nothing was */
    }
    if (works && to->state != state) {
        log_info("save_dir: chunks that did not change since the last published version are shared with its files");
    } else if (!works && (to->state != state || to->why.code == TCK_OK)) {
        log_not_shared(c, state);
    }
    to->state = state;
    to->why = c->outcome;
}

void clone_put_end(struct persistent *p, struct clone_put *c)
{
    if (c == NULL) {
        return;
    }
    note_outcome(&p->clones, c);
    if (c->named) {
        c->written->in_a_row = c->bytes > 0 ? c->base->in_a_row + 1 : 0;
        clone_past_add(c->past, c->written, c->base);
    } else {
        free(c->written);
    }
    clone_past_return(&p->clones.past, c->past);
    free(c);
}

bool clone_put_again(struct clone_put *c, const struct error *outcome)
{
    if (c == NULL || c->bytes == 0 || outcome->code != TCK_ERR_IO) {
        return false;
    }
    log_warn("the file shares blocks with that of version %" PRIu64 ".%" PRIu64
             ", which may be damaged, so it is written once more, as a whole: %s",
             c->base->version.term, c->base->version.step, outcome->text);
    clone_past_drop(c->past, c->base);
    memset(c->bits, 0, bits_bytes(chunk_count(c->item.image_bytes)));
    c->base = NULL;
    c->bytes = 0;
    c->one_in = 0;
    return true;
}

const uint8_t *clone_put_shared(const struct clone_put *c)
{
    return clone_put_bytes(c) > 0 ? c->bits : NULL;
}

uint64_t clone_put_bytes(const struct clone_put *c)
{
    return c != NULL ? c->bytes : 0;
}

/* ---- in a pool thread ------------------------------------------------------------------------------------------ */

/* Whether a file before it may have the same chunk: then its hash is needed, now or by the next version. */
static bool wants_hash(const struct clone_put *c, uint32_t chunk)
{
    bool wants = false;
    for (uint32_t i = 0; i < 2; i++) {
        const struct clone_base *base = c->past->of[i];
        wants = wants || (base != NULL && clone_may_be_same(&c->written->hashed, &base->hashed, chunk));
    }
    return wants;
}

void clone_put_digest(struct clone_put *c, struct persistent *p, uint64_t epoch)
{
    const struct tier_item *item = &c->item;
    uint32_t chunks = chunk_count(item->image_bytes), i = 0;
    while (i < chunks && epoch == atomic_load(&p->epoch) && !atomic_load(&p->canceled)) {
        if (wants_hash(c, i)) {
            const uint8_t *chunk = item->image + (uint64_t)i * CHUNK_BYTES;
            c->written->hashes[i] = hash128_of(chunk, chunk_size(item->image_bytes, i));
            persistent_moved(p); /* no call to storage is under way, which may still look as if it hung */
        }
        i++;
    }
    c->digested = i == chunks;
}

static tck_status_t try_files(int dir_fd, const char *name, struct error *err)
{
    char names[2][BENEATH_NAME_MAX + 1];
    int fds[2] = {-1, -1};
    struct error ignored;
    tck_status_t status = TCK_OK;
    for (uint32_t i = 0; i < 2 && status == TCK_OK; i++) {
        status = safe_fs_part_name(name, names[i], err);
        if (status == TCK_OK) {
            status = safe_fs_open(dir_fd, names[i], O_RDWR | O_CREAT | O_EXCL, &fds[i], err);
        }
    }
    if (status == TCK_OK) {
        status = clone_try(fds[0], fds[1], err);
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
            if (safe_fs_unlink(dir_fd, names[i], &ignored) != TCK_OK) {
                log_debug("a part file is left to the next sweep: %s", ignored.text);
            }
        }
    }
    return status;
}

void clone_put_try(struct clone_put *c, int dir_fd, const char *name)
{
    if (c->tries) {
        c->outcome.code = try_files(dir_fd, name, &c->outcome);
        c->tried = true;
    }
}

/* The file of a version that was published and is still the one that this agent has written. */
static tck_status_t open_base(const struct persistent *p, const struct clone_base *base, const char *name, int *fd_out,
                              struct error *err)
{
    char dir[DIR_NAME_MAX];
    int dir_fd = -1;
    version_dir_name(base->version, dir);
    tck_status_t status = safe_fs_open_dir(p->job.fd, dir, &dir_fd, err);
    if (status == TCK_OK) {
        status = file_open_marked(dir_fd, name, &base->mark, fd_out, err);
        close(dir_fd);
    }
    return status;
}

/* One range for all chunks in a row. A chunk whose range cannot be shared is written, as are those after it. */
static void share_runs(struct clone_put *c, int from, int fd)
{
    uint64_t bytes = c->item.image_bytes;
    uint32_t chunks = chunk_count(bytes);
    struct chunk_run run = chunk_run_next(c->bits, chunks, 0, true);
    while (run.count > 0) {
        uint64_t begin = (uint64_t)run.first * CHUNK_BYTES, end = begin + (uint64_t)run.count * CHUNK_BYTES;
        end = end < bytes ? end : bytes;
        if (c->outcome.code == TCK_OK) {
            c->outcome.code = clone_range(from, fd, begin, end - begin, &c->outcome);
        }
        for (uint32_t i = run.first; i < run.first + run.count && c->outcome.code != TCK_OK; i++) {
            bit_clear(c->bits, i);
            c->bytes -= chunk_size(bytes, i);
        }
        progress_moved();
        run = chunk_run_next(c->bits, chunks, run.first + run.count, true);
    }
}

void clone_put_share(struct clone_put *c, const struct persistent *p, int fd, const char *name)
{
    for (uint32_t i = 0; i < 2 && c->digested && c->base == NULL && c->outcome.code == TCK_OK; i++) {
        const struct clone_base *base = c->past->of[i];
        struct error ignored;
        int from = -1;
        if (base == NULL || open_base(p, base, name, &from, &ignored) != TCK_OK) {
            continue;
        }
        c->base = base;
        if (clone_may_share(base->in_a_row, c->one_in)) {
            c->bytes = clone_choose(&c->written->hashed, &base->hashed, c->bits);
            share_runs(c, from, fd);
        }
        close(from);
    }
}

void clone_put_named(struct clone_put *c, int dir_fd, const char *name)
{
    struct error ignored;
    c->named = c->digested && file_mark_at(dir_fd, name, &c->written->mark, &ignored) == TCK_OK;
}
