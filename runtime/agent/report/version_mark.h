/* SPDX-License-Identifier: Apache-2.0
 * What happens to versions and terms, as marks in a trace: from the events, actions and decisions of the protocol's
 * machines. Pure. */
#ifndef TCK_AGENT_VERSION_MARK_H
#define TCK_AGENT_VERSION_MARK_H

#include "core/protocol.h"
#include "core/slot.h"

enum mark_phase { MARK_BEGIN, MARK_END, MARK_INSTANT };

/* A begin and the end that follows it have the same name, version, and numbers. */
struct version_mark {
    enum mark_phase phase;
    /* save, digest, copy, receive, drain, publish; instants: protected, committed, published, failed; of a term: term,
     * restored, restored nothing, recovered, node lost, node back; of a shard: fetched, repaired */
    const char *name;
    struct version version; /* what concerns a whole term has step 0 */
    uint32_t rank;          /* local number of the trainer of a save, else NONE32 */
    uint32_t slot;          /* of a digest, and of a copy that is received, else NONE32 */
    uint32_t shard, node;   /* of a copy, and where it goes or comes from, else NONE32 */
    uint64_t attempt;       /* of a drain */
    bool ok;                /* of an end */
};

/* The mark of an event that is about to be handled in this term. `slot` is the event's before that; NULL: it has none.
 * False: it has no mark. */
bool version_mark_of_event(const struct event *event, uint64_t term, const struct slot *slot, struct version_mark *out);
/* The mark of an action that is about to be carried out. */
bool version_mark_of_action(const struct action *action, struct version_mark *out);

/* The mark of a shard of the world that a recovery, or a repair, has brought to this node. */
struct version_mark version_mark_of_arrival(uint32_t shard, struct version version, bool repairs);

#define DECISION_MARKS 3
/* What has come about between two decisions that follow each other: a term, what it restores, the end of its recovery.
 * Returns how many marks there are. */
uint32_t version_marks_of_decision(const struct decision *before, const struct decision *now,
                                   struct version_mark out[DECISION_MARKS]);

#endif
