/* SPDX-License-Identifier: Apache-2.0
 * Terms that are reserved on storage for the successors of a term, so that a job can be started again while storage is
 * away. One agent has a reservation, that of the newest term's coordinator. When it grants a term, it adopts that term,
 * so it no longer publishes anything, and it passes the rest of the reservation on. Pure. */
#ifndef TCK_CORE_RESERVE_H
#define TCK_CORE_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

#define RESERVE_COUNT 4 /* starts that are possible before storage is needed again */

/* What an agent was granted: this term, and the reservation of those up to `last`. */
struct grant {
    uint64_t to;   /* agent_id */
    uint64_t term; /* 0: none */
    uint64_t last;
    uint64_t follows; /* the newest term before it that may have saved something; those in between have not */
};

/* What an agent keeps, also across its own restart. Zeroed: nothing. */
struct reserve {
    uint64_t first, last; /* not granted yet; 0: none */
    uint64_t follows;     /* of the last grant to this agent; 0: there was none */
    struct grant given;   /* the last grant, for an agent that did not receive it and asks again */
};

/* What an agent knows about terms at the moment. */
struct reserve_terms {
    uint64_t adopted;     /* the highest that it knows of */
    uint64_t joined;      /* the newest that it was part of */
    uint64_t committed;   /* of the newest commit that it knows of */
    uint64_t claimed;     /* the newest reserved term that a trainer of its node was granted; 0: none */
    uint32_t claimed_pid; /* and the process of that trainer; 0: not known */
    uint64_t granting; /* a claim on its node was granted this term, and is over when that has been adopted; 0: none */
};
/* The newest term that may have saved something, as far as the agent knows. */
uint64_t reserve_newest_saved(const struct reserve_terms *terms);
/* The reserved term was granted to this process. */
bool reserve_claimed_by(const struct reserve_terms *terms, uint64_t term, uint32_t pid);

/* Whether this term is reserved here: then its file on storage is not a claim. */
bool reserve_has(const struct reserve *r, uint64_t term);
/* A request for a term. */
struct reserve_ask {
    uint64_t to;       /* agent_id */
    uint64_t at_least; /* above what that agent has adopted */
    uint64_t adopted;  /* by the agent that is asked, when it said that no trainer of its node holds the job */
};
/* The term that it would get; 0: none. */
uint64_t reserve_offer(const struct reserve *r, uint64_t to, uint64_t at_least);
/* Grants the term, unless another start was granted one since, or is being granted one: then term 0. terms: of the
 * agent that grants. It must have adopted the term and have stored the new reservation before any other agent learns of
 * it. */
struct grant reserve_give(struct reserve *r, const struct reserve_terms *terms, const struct reserve_ask *ask);
/* Whether a process of this node may take a term that was granted to it. A grant that comes late may be over, and one
 * that is given again may belong to another process of this node. */
bool reserve_may_take(const struct reserve_terms *terms, uint64_t term, uint64_t at_least, uint32_t pid);
/* To the agent `to` itself: from now on the reservation is here. */
void reserve_take(struct reserve *r, const struct grant *grant);
/* A term was adopted. If it was not granted here, it was claimed on storage, above all reserved ones. */
void reserve_adopted(struct reserve *r, uint64_t term);
/* How many terms right before this one, which this agent coordinates, were given to starts that saved nothing. */
uint64_t reserve_unused(const struct reserve *r, const struct reserve_terms *terms, uint64_t term);

/* The terms that are to be reserved for the successors of this one. False: there are enough. */
bool reserve_missing(const struct reserve *r, uint64_t term, uint64_t *first_out, uint64_t *last_out);
/* They have been reserved by an agent that was serving the term `by` then. False: they can no longer be used. */
bool reserve_may_add(const struct reserve *r, const struct reserve_terms *terms, uint64_t by, uint64_t first);
void reserve_add(struct reserve *r, uint64_t first, uint64_t last);

/* The answer of an agent that is asked which start holds the job. */
struct reserve_answer {
    uint64_t adopted;
    uint64_t offer; /* 0: it has none */
};
/* The index of the answer whose offer can be taken, or UINT32_MAX: it has to be above all terms that anybody has
 * claimed or adopted. newest: the highest claimed on storage, 0 if storage was not read. */
uint32_t reserve_choose(const struct reserve_answer *answers, uint32_t count, uint64_t newest);

#endif
