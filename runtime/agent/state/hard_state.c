/* SPDX-License-Identifier: Apache-2.0
 * The agent's stored state: head pages written alternately, the world in a file of its own. */
#include "agent/state/hard_state.h"

#include "base/digest.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_NAME    "state.head"
#define WORLD_PREFIX "state.world."
#define PAGE         4096u
#define HEAD_BYTES   8192u /* two pages, written alternately */
#define HEAD_MAGIC   0x3165746174736b74ull
#define STATE_FORMAT 5u
#define WORLD_MAX    ((off_t)1 << 30)

struct hard_state {
    struct hard_state_setup setup;
    int head_fd;
    uint8_t *head; /* two pages */
    uint64_t sequence;
    struct kept kept;
    int world_fd;
    uint64_t world_term;
};

tck_status_t hard_state_new(const struct hard_state_setup *setup, struct hard_state **out, struct error *err)
{
    struct hard_state *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent state: out of memory");
    }
    s->setup = *setup;
    s->head_fd = -1;
    s->world_fd = -1;
    *out = s;
    return TCK_OK;
}

void hard_state_free(struct hard_state *s)
{
    if (s == NULL) {
        return;
    }
    if (s->head != NULL) {
        munmap(s->head, HEAD_BYTES);
    }
    if (s->head_fd >= 0) {
        close(s->head_fd);
    }
    if (s->world_fd >= 0) {
        close(s->world_fd);
    }
    free(s);
}

static void world_name(uint64_t term, char *out, size_t cap)
{
    snprintf(out, cap, WORLD_PREFIX "%" PRIu64, term);
}

static bool adopt_world(struct hard_state *s, const char *name, int fd)
{
    char *end = NULL;
    unsigned long long term = strtoull(name + strlen(WORLD_PREFIX), &end, 10);
    if (*end != '\0' || (s->world_fd >= 0 && term <= s->world_term)) {
        s->setup.drop_fd(s->setup.ctx, name);
        close(fd);
        return true;
    }
    if (s->world_fd >= 0) {
        char old[64];
        world_name(s->world_term, old, sizeof(old));
        s->setup.drop_fd(s->setup.ctx, old);
        close(s->world_fd);
    }
    s->world_fd = fd;
    s->world_term = term;
    return true;
}

bool hard_state_adopt(struct hard_state *s, const char *name, int fd)
{
    if (strcmp(name, HEAD_NAME) == 0) {
        if (s->head_fd >= 0) {
            close(fd);
            return true;
        }
        s->head_fd = fd;
        return true;
    }
    return strncmp(name, WORLD_PREFIX, strlen(WORLD_PREFIX)) == 0 && adopt_world(s, name, fd);
}

SCHEMA_PART(kept, KEPT_FIELDS, schema_any)

static bool head_decode(const uint8_t *page, uint64_t *sequence, struct kept *out)
{
    struct reader tail = reader_of(page + PAGE - 4, 4);
    if (read_u32(&tail) != crc32c(0, page, PAGE - 4)) {
        return false;
    }
    struct reader r = reader_of(page, PAGE - 4);
    uint32_t format = read_u64(&r) == HEAD_MAGIC ? read_u32(&r) : 0;
    if (format != STATE_FORMAT) {
        log_warn("the state that the previous agent kept has format %u, this build reads format %u", format,
                 STATE_FORMAT);
        return false;
    }
    *sequence = read_u64(&r);
    *out = read_kept(&r);
    return !r.failed;
}

static void head_encode(const struct kept *kept, uint64_t sequence, uint8_t page[PAGE])
{
    struct writer w = writer_over(page, PAGE - 4);
    struct writer tail = writer_over(page + PAGE - 4, 4);
    memset(page, 0, PAGE);
    write_u64(&w, HEAD_MAGIC);
    write_u32(&w, STATE_FORMAT);
    write_u64(&w, sequence);
    write_kept(&w, kept);
    write_u32(&tail, crc32c(0, page, PAGE - 4));
}

void hard_state_put(struct hard_state *s, const struct kept *kept)
{
    uint8_t page[PAGE];
    s->kept = *kept;
    s->sequence++;
    head_encode(kept, s->sequence, page);
    memcpy(s->head + (s->sequence % 2) * PAGE, page, PAGE / 32);
    failpoint(state, writing);
    memcpy(s->head + (s->sequence % 2) * PAGE, page, PAGE);
}

void hard_state_put_base(struct hard_state *s, uint64_t term, struct version base, const char *passed_over)
{
    struct kept kept = s->kept;
    if (kept.base_term == term && version_is(kept.base, base) && strcmp(kept.passed_over, passed_over) == 0) {
        return; /* the same answer may be repeated */
    }
    kept.base = base;
    kept.base_term = term;
    snprintf(kept.passed_over, sizeof(kept.passed_over), "%s", passed_over);
    hard_state_put(s, &kept);
}

const char *hard_state_passed_over(const struct hard_state *s, struct version base)
{
    return version_is(s->kept.base, base) ? s->kept.passed_over : "";
}

static tck_status_t map_head(struct hard_state *s, struct error *err)
{
    struct stat st;
    if (fstat(s->head_fd, &st) != 0 || st.st_size != HEAD_BYTES) {
        return error_set(err, TCK_ERR_CORRUPT, "agent state: the kept head has the wrong size");
    }
    void *p = mmap(NULL, HEAD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, s->head_fd, 0);
    if (p == MAP_FAILED) {
        return error_set(err, status_of_errno(errno), "agent state: mmap: %m");
    }
    s->head = p;
    return TCK_OK;
}

static tck_status_t make_head(struct hard_state *s, struct error *err)
{
    s->head_fd = memfd_create("tierckpt-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (s->head_fd < 0 || ftruncate(s->head_fd, HEAD_BYTES) != 0) {
        return error_set(err, status_of_errno(errno), "agent state: memfd: %m");
    }
    return s->setup.store_fd(s->setup.ctx, HEAD_NAME, s->head_fd, err);
}

/* Reads the newest valid page; false if neither is valid. */
static bool read_head(struct hard_state *s)
{
    bool found = false;
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t sequence;
        struct kept kept;
        if (head_decode(s->head + (size_t)i * PAGE, &sequence, &kept) && (!found || sequence > s->sequence)) {
            s->sequence = sequence;
            s->kept = kept;
            found = true;
        }
    }
    return found;
}

tck_status_t hard_state_ready(struct hard_state *s, struct error *err)
{
    if (s->head_fd < 0) {
        tck_status_t status = make_head(s, err);
        if (status != TCK_OK) {
            return status;
        }
    }
    tck_status_t status = map_head(s, err);
    if (status != TCK_OK) {
        return status;
    }
    if (read_head(s)) {
        return TCK_OK;
    }
    struct kept fresh = {0};
    status = random_bytes(&fresh.agent_id, sizeof(fresh.agent_id));
    if (status != TCK_OK) {
        return error_set(err, status, "agent state: no random bytes");
    }
    hard_state_put(s, &fresh);
    return TCK_OK;
}

const struct kept *hard_state_get(const struct hard_state *s)
{
    return &s->kept;
}

uint64_t hard_state_save_dir(const struct config *config)
{
    char path[2 * CONFIG_PATH];
    int len = snprintf(path, sizeof(path), "%s/%s", config->save_dir, config->job);
    return hash128_of(path, (size_t)len).hi;
}

struct version hard_state_watermark(const struct hard_state *s)
{
    return version_none(s->kept.decision.watermark) ? s->kept.watermark : s->kept.decision.watermark;
}

static tck_status_t write_all(int fd, const uint8_t *data, size_t len, struct error *err)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno != EINTR) {
            return error_set(err, status_of_errno(errno), "agent state: writing the world: %m");
        }
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return TCK_OK;
}

/* A file of the encoded world followed by its CRC. */
static tck_status_t world_file(const struct world *world, int *fd_out, struct error *err)
{
    struct writer w = writer_new(WORLD_MAX);
    world_encode(world, &w);
    write_u32(&w, w.failed ? 0 : crc32c(0, w.data, w.len));
    int fd = memfd_create("tierckpt-world", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    tck_status_t status;
    if (w.failed || fd < 0) {
        status = error_set(err, TCK_ERR_NOMEM, "agent state: out of memory");
    } else {
        status = write_all(fd, w.data, w.len, err);
    }
    writer_free(&w);
    if (status != TCK_OK) {
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    *fd_out = fd;
    return TCK_OK;
}

tck_status_t hard_state_put_world(struct hard_state *s, const struct world *world, struct error *err)
{
    int fd = -1;
    tck_status_t status = world_file(world, &fd, err);
    if (status != TCK_OK) {
        return status;
    }
    char name[64];
    world_name(world->term, name, sizeof(name));
    failpoint(state, world);
    status = s->setup.store_fd(s->setup.ctx, name, fd, err);
    if (status != TCK_OK) {
        close(fd);
        return status;
    }
    if (s->world_fd >= 0) {
        if (s->world_term != world->term) {
            world_name(s->world_term, name, sizeof(name));
            s->setup.drop_fd(s->setup.ctx, name);
        }
        close(s->world_fd);
    }
    s->world_fd = fd;
    s->world_term = world->term;
    return TCK_OK;
}

tck_status_t hard_state_world(const struct hard_state *s, struct world *out, struct error *err)
{
    if (s->world_fd < 0 || s->world_term != s->kept.term.joined) {
        return error_set(err, TCK_ERR_NOENT, "agent state: no world is kept");
    }
    return hard_state_last_world(s, out, err);
}

tck_status_t hard_state_last_world(const struct hard_state *s, struct world *out, struct error *err)
{
    struct stat st;
    if (s->world_fd < 0 || fstat(s->world_fd, &st) != 0 || st.st_size < 4 || st.st_size > WORLD_MAX) {
        return error_set(err, TCK_ERR_NOENT, "agent state: no world is kept");
    }
    size_t len = (size_t)st.st_size;
    uint8_t *p = mmap(NULL, len, PROT_READ, MAP_SHARED, s->world_fd, 0);
    if (p == MAP_FAILED) {
        return error_set(err, status_of_errno(errno), "agent state: mmap: %m");
    }
    struct reader tail = reader_of(p + len - 4, 4);
    struct reader r = reader_of(p, len - 4);
    tck_status_t status = TCK_OK;
    if (read_u32(&tail) != crc32c(0, p, len - 4)) {
        status = error_set(err, TCK_ERR_CORRUPT, "agent state: the kept world does not match its CRC");
    } else {
        status = world_decode(&r, out, err);
    }
    munmap(p, len);
    return status;
}
