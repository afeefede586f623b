/* SPDX-License-Identifier: Apache-2.0
 * Decides which start may begin a term: a start of a job must not stop the saves of another start that is alive.
 * Pure. */
#ifndef TCK_CORE_HOLDER_H
#define TCK_CORE_HOLDER_H

#include <stdbool.h>
#include <stdint.h>

#define HOLDER_ANSWER_MS 2000 /* an agent that has not answered for this long counts as unreachable */
#define HOLDER_END_MS    5000 /* a trainer that was told to end may take this long */
#define HOLDER_WRITE_MS \
    1000 /* a claim is made before its content is written; if that takes longer, its writer is dead */

/* A trainer of the previous term, at the moment of the question. */
struct holder_trainer {
    uint64_t term; /* that it has joined, or claimed; 0: neither */
    bool alive;    /* its process runs or is stopped; a zombie does not */
    bool done;     /* it has detached */
    bool arrives;  /* the same process is on its way into a new term, so it gives up the old one by itself */
    bool same_run; /* the launcher that started it has started the one that asks */
    bool ancestor; /* the one that asks is a child of it, and has inherited its run id */
};

/* Whether it would lose its job to the start that asks. terms_from: the oldest term that may still be in use. */
bool holder_counts(const struct holder_trainer *trainer, uint64_t terms_from);

/* The newest term whose claim did not name its holder, and since when that is known. Zeroed: none. */
struct holder_unnamed {
    uint64_t term, since_ms;
};

/* Whether the newest term's claim may still be being written, so that it has to be read again. */
bool holder_may_be_written(struct holder_unnamed *unnamed, uint64_t newest, bool named, uint64_t now_ms);

/* A claim under way. Times count from when the first question was asked. */
struct holder_claim {
    uint64_t after;    /* the claimer's own term; 0: it starts */
    uint64_t newest;   /* highest term that anybody has claimed; 0: none */
    bool newest_ours;  /* the claimer has claimed it, and may not have received the answer */
    bool takeover;     /* its start is configured to take the job over */
    uint32_t silent;   /* agents of the terms before that have not answered yet */
    uint32_t held;     /* agents whose newest answer is that trainers there would lose the job */
    bool second;       /* an agent of the job has answered that runs beside the one which its node has now */
    uint64_t since_ms; /* how long ago the questions began */
};

enum holder_verdict {
    HOLDER_FREE,       /* claim the term */
    HOLDER_WAIT,       /* ask those that have not answered, and again those where trainers were alive */
    HOLDER_HELD,       /* refuse: trainers are alive */
    HOLDER_SECOND,     /* refuse: another agent on the same node may have newer versions in its memory */
    HOLDER_SUPERSEDED, /* refuse: another start has claimed a term after the claimer's own */
};

/* A claimer that has a term may begin another one only if its own is the newest; otherwise its term is over, and it
 * cannot come back. A claimer that is starting is refused while trainers of another run are alive, or a second
 * agent runs on a node. */
enum holder_verdict holder_judge(const struct holder_claim *claim);

#endif
