/* SPDX-License-Identifier: Apache-2.0
 * The state that must outlive the agent's process: its id, its term, that term's world, the newest decision. It is kept
 * in memory files in the descriptor store, so it lives exactly as long as the slots do: a head of two pages that are
 * written alternately, and the world. */
#ifndef TCK_AGENT_STATE_H
#define TCK_AGENT_STATE_H

#include "base/world.h"
#include "core/changes.h"
#include "core/protocol.h"
#include "core/reserve.h"
#include "core/term.h"

struct hard_state;

/* A stored file stays open until drop_fd, or until another is stored under its name. */
struct hard_state_setup {
    tck_status_t (*store_fd)(void *ctx, const char *name, int fd, struct error *err);
    void (*drop_fd)(void *ctx, const char *name);
    void *ctx;
};

/* The contents of the head. */
struct kept {
    uint64_t agent_id;
    struct term_state term;
    struct decision decision; /* newest seen (or, on the coordinator, made) in term.joined */
    struct version watermark; /* of the newest decision of earlier terms */
    uint64_t save_dir;        /* hard_state_save_dir of the directory in which term.joined was claimed; 0: not known */
    struct reserve reserve;   /* terms for successors */
    uint64_t claimed;         /* the newest reserved term that a trainer of this node was granted; 0: none */
    uint32_t claimed_pid;     /* the trainer's process */
    uint16_t port;            /* that this agent announced to others; 0: unknown */
    struct version base;      /* the version that was last chosen to be restored */
    uint64_t base_term;       /* the term that chose it; 0: unknown */
    char passed_over[PASSED_TEXT_BYTES]; /* which newer version was passed over for it, and why; "": none */
    struct changes changes;              /* of settings, while the job runs */
    struct overridden overridden;        /* by those changes */
};

/* What follows magic, format and sequence number in the head. Builds without the last fields left zeros there.
 */
#define KEPT_FIELDS(F)                     \
    F(u64, agent_id)                       \
    F(u64, term.adopted)                   \
    F(u64, term.joined)                    \
    F(version, watermark)                  \
    F(optional, decision, decision)        \
    F(u16, port)                           \
    F(u64, save_dir)                       \
    F(u64, reserve.first)                  \
    F(u64, reserve.last)                   \
    F(u64, reserve.given.to)               \
    F(u64, reserve.given.term)             \
    F(u64, reserve.given.last)             \
    F(u64, reserve.given.follows)          \
    F(u64, reserve.follows)                \
    F(u64, claimed)                        \
    F(u32, claimed_pid)                    \
    F(version, base)                       \
    F(str, passed_over, PASSED_TEXT_BYTES) \
    F(u64, base_term)                      \
    F(part, changes, changes)              \
    F(part, overridden, overridden)

must_check tck_status_t hard_state_new(const struct hard_state_setup *setup, struct hard_state **out,
                                       struct error *err);
void hard_state_free(struct hard_state *state);

/* Offers a file found at start. True: it belongs to the state, which now owns it. */
bool hard_state_adopt(struct hard_state *state, const char *name, int fd);
/* To be called after all files were offered: uses the newest valid head, or creates and stores a new one with a random
 * agent_id. */
must_check tck_status_t hard_state_ready(struct hard_state *state, struct error *err);

const struct kept *hard_state_get(const struct hard_state *state);
/* A digest of the path of the job's directory on storage. */
uint64_t hard_state_save_dir(const struct config *config);
/* The newest commit that this agent knows of, even if it holds no copy. */
struct version hard_state_watermark(const struct hard_state *state);
/* Replaces the head. Cheap: one page of memory and a CRC. */
void hard_state_put(struct hard_state *state, const struct kept *kept);

/* Keeps the base that this term has chosen, with the reason why it is not the newest version. The next agent and the
 * next term report that reason to trainers, too. */
void hard_state_put_base(struct hard_state *state, uint64_t term, struct version base, const char *passed_over);
/* The reason kept with this base; "" if another base was chosen since. */
const char *hard_state_passed_over(const struct hard_state *state, struct version base);

/* Keeps the world of the term being joined in a file of its own, and removes the previous one. */
must_check tck_status_t hard_state_put_world(struct hard_state *state, const struct world *world, struct error *err);
/* The kept world of the newest term that had its memory here, which may be older than term.joined; TCK_ERR_NOENT if
 * there is none. The caller frees it with world_free. */
must_check tck_status_t hard_state_last_world(const struct hard_state *state, struct world *out, struct error *err);
/* The same, if it is that of term.joined. */
must_check tck_status_t hard_state_world(const struct hard_state *state, struct world *out, struct error *err);

#endif
