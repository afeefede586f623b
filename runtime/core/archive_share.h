/* SPDX-License-Identifier: Apache-2.0
 * A node's part in copying versions to archive_dir: when it copies its files of the version that the coordinator wants,
 * what it reports, and when a copy that failed is made again. Pure: the agent copies (agent/drain/archive_files.h) and
 * passes the outcome in. */
#ifndef TCK_CORE_ARCHIVE_SHARE_H
#define TCK_CORE_ARCHIVE_SHARE_H

#include "core/archive_lead.h"

/* Changed by the functions below alone. Zeroed at first. */
struct archive_share {
    uint64_t term;
    struct version wanted; /* by the coordinator; VERSION_NONE: nothing */
    uint64_t wanted_since_ms;
    struct version copied; /* all files of this node of that version are in the archive */

    bool copying;        /* these files: */
    uint64_t copying_in; /* a term, which may be over */
    struct version of;   /* and a version, which may no longer be wanted */
    uint64_t copy_after_ms;
    uint32_t failures; /* in a row, whatever version they were of */
};

enum archive_share_step {
    SHARE_WAIT,
    SHARE_STOP,   /* end the copy that is under way, which is no longer wanted */
    SHARE_REPORT, /* that the files are there: repeated until the coordinator wants something else, since a report may
                     be lost, or the coordinator's agent restarted */
    SHARE_COPY    /* begin; archive_share_begun follows, or archive_share_unable */
};

/* A term begins, in which nothing is wanted yet. A copy that is under way goes on until the next step ends it. */
void archive_share_begin(struct archive_share *share, uint64_t term);
/* The coordinator wants this version. */
void archive_share_want(struct archive_share *share, struct version version, uint64_t now_ms);
enum archive_share_step archive_share_next(const struct archive_share *share, uint64_t now_ms);
void archive_share_begun(struct archive_share *share);
/* The copy cannot begin, because memory is short. */
void archive_share_unable(struct archive_share *share, uint64_t now_ms);

struct archive_share_effects {
    bool works;  /* the archive can be used */
    bool failed; /* with the outcome of the copy */
    bool report; /* to the coordinator, at once; `failed` says what */
};
/* The copy that was under way has ended. term: the present one; 0: the term is over. */
struct archive_share_effects archive_share_ended(struct archive_share *share, enum archive_end end, uint64_t term,
                                                 uint64_t now_ms);

/* Whether the coordinator waits for files of this node, for at most patience_ms. */
bool archive_share_owes(const struct archive_share *share, uint64_t patience_ms, uint64_t now_ms);

#endif
