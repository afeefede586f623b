/* SPDX-License-Identifier: Apache-2.0
 * When a trainer's JOIN is answered, and when it is refused. Pure. */
#ifndef TCK_CORE_JOIN_H
#define TCK_CORE_JOIN_H

#include <stdbool.h>
#include <stdint.h>

struct join_standing {
    bool missing;       /* a session with a node that the term needs */
    bool gone;          /* the agent of a node of the term, with its memory: a new term has to be formed */
    bool checking;      /* whether all nodes see one save_dir */
    bool unshared;      /* they do not */
    bool returning;     /* to a restarted agent, which had sessions with them before */
    uint64_t waited_ms; /* for sessions */
    uint64_t limit_ms;
};

enum join_verdict { JOIN_ANSWER, JOIN_WAIT, JOIN_REFUSE };

/* A trainer that comes back must not wait for another restart. */
enum join_verdict join_judge(const struct join_standing *standing);

#endif
