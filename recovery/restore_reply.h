/* SPDX-License-Identifier: Apache-2.0
 * When the coordinator begins the recovery of its term, and what it replies to a trainer that asks to restore. A term
 * has one recovery, and one answer: its base. Pure. */
#ifndef TCK_RECOVERY_RESTORE_REPLY_H
#define TCK_RECOVERY_RESTORE_REPLY_H

#include "core/protocol.h"

#define RESTORE_GRACE_MS                                                                       \
    1500 /* for trainers that ask for a given step; after this the newest version is recovered \
            without a request */

struct restore_due {
    const struct decision *decision;
    bool recovering; /* this agent has begun it */
    bool all_registered;
    bool asked;
    bool will_be_asked; /* a trainer has announced that it will ask for a given step, and has not done so yet */
    uint64_t waited_ms; /* since all have registered */
};

/* Trainers may also save without a restore, or end before they ask. A recovery continues with a base that was
 * chosen. */
bool restore_is_due(const struct restore_due *due);

struct restore_question {
    uint64_t step; /* or TCK_NEWEST */
    const struct decision *decision;
    bool recovering, ended; /* this agent has begun the recovery, and it is over */
    uint64_t recovery_step; /* the step that it began with */
    bool answered;          /* an answer is known, to answered_step */
    uint64_t answered_step;
};

enum restore_reply {
    RESTORE_BEGIN,     /* the recovery begins with this question, as soon as it is due */
    RESTORE_UNDER_WAY, /* all trainers get the answer when it is ready */
    RESTORE_ANSWERED,  /* with the known answer */
    RESTORE_KEPT_BASE, /* with the base of the kept decision: a restarted agent has lost its answer */
    /* A new term is needed: */
    RESTORE_BASE_LOST, /* the version that this term has restored is lost */
    RESTORE_SAVED,     /* this term has saved since it began */
    RESTORE_NO_BASE,   /* it began without a version; only a recovery can determine why */
    RESTORE_OTHER,     /* it has recovered another version */
};

enum restore_reply restore_reply(const struct restore_question *question);

#endif
