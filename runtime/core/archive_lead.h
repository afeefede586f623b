/* SPDX-License-Identifier: Apache-2.0
 * The coordinator's part in copying versions to archive_dir: which version is copied next, when its copy is published,
 * and when a call that failed is made again. Pure: the agent makes the calls (agent/drain/archive_calls.h) and passes
 * their outcomes in. At most one call is under way at a time. */
#ifndef TCK_CORE_ARCHIVE_LEAD_H
#define TCK_CORE_ARCHIVE_LEAD_H

#include "base/version.h"

#include <stdbool.h>
#include <stdint.h>

/* A call to the archive. */
enum archive_call {
    ARCHIVE_NOTHING,
    ARCHIVE_LOOK,    /* which version in the archive is the newest */
    ARCHIVE_PREPARE, /* remove what copies of others have left, before all nodes copy this one */
    ARCHIVE_PUBLISH  /* all nodes have copied their files */
};

struct archive_ask {
    enum archive_call call;
    uint64_t term;          /* in which it was asked */
    struct version version; /* VERSION_NONE of a look */
};

enum archive_end {
    ARCHIVE_DONE,
    ARCHIVE_CANCELED, /* the agent is exiting, or what was asked is no longer wanted */
    ARCHIVE_FAILED,
    ARCHIVE_LACKS /* failed, since something that nodes have copied is missing, damaged or something else */
};

struct archive_answer {
    enum archive_end end;
    struct version newest; /* in the archive, after a look or a publish that is done */
    uint64_t newest_wall_ms;
};

/* Changed by the functions below alone. Zeroed at first. */
struct archive_lead {
    uint64_t term; /* that the members from here to reported_ms belong to */
    uint32_t node_count;
    bool *reported; /* by node; the caller's */
    uint32_t reported_count;
    struct version chosen;
    uint64_t reported_ms; /* when it was chosen, or the last node reported */

    bool calling;
    bool known; /* the newest version in the archive, in this term */
    struct version archived;
    uint64_t archived_wall_ms;
    uint64_t not_before_ms; /* no call is made until then */
    uint32_t failures;      /* in a row, since a version was published */
};

/* What follows from an event; several may be true. */
struct archive_effects {
    bool chosen;    /* lead->chosen has changed: pin it in save_dir and announce it */
    bool published; /* a version is in the archive */
    bool works;     /* the archive can be used */
    bool failed;    /* with the outcome of the call */
    bool ahead;     /* the archive has a version of a term that save_dir has not reached */
};

struct archive_now {
    uint64_t ms, wall_ms;
    uint64_t every_steps, every_ms; /* save_archive_interval; 0: not by steps, or not by time */
    struct version published;       /* newest one in save_dir */
};

/* A term begins. Nothing is chosen in it, and the archive has to be looked at, since another coordinator may have
 * published meanwhile. reported: of node_count members, the caller's until the next term begins. */
void archive_lead_begin(struct archive_lead *lead, uint64_t term, uint32_t node_count, bool *reported);
/* The call to make now. If it is made, the caller sets lead->calling. */
struct archive_ask archive_lead_next(const struct archive_lead *lead, const struct archive_now *now);
/* A call has ended. term: the present one, which may be newer than that of archive_lead_begin; 0: the term is over. */
struct archive_effects archive_lead_answered(struct archive_lead *lead, const struct archive_ask *ask,
                                             const struct archive_answer *answer, uint64_t term, uint64_t now_ms);
/* A node has copied its files of a version. Reports of others than the chosen version are late. */
void archive_lead_copied(struct archive_lead *lead, uint32_t node, struct version version, uint64_t now_ms);
/* A node could not: the version stays chosen, and the node tries again, unless save_dir has a newer one, since
 * retention may have deleted the chosen one there. Nothing follows from a late report. */
struct archive_effects archive_lead_could_not(struct archive_lead *lead, uint32_t node, struct version version,
                                              const struct archive_now *now);

#endif
