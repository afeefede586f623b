/* SPDX-License-Identifier: Apache-2.0
 * Terms that are reserved on storage for the successors of a term, so that a job can be started again while storage is
 * away. One agent has a reservation, that of the newest term's coordinator. When it gives a term away it adopts that
 * term, so it publishes nothing any more, and it hands on what is left of the reservation. Pure. */
#ifndef TCK_CORE_RESERVE_H
#define TCK_CORE_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

#define RESERVE_COUNT 4 /* starts that are possible before storage is needed again */

/* What an agent was given: this term, and the reservation of those up to `last`. */
struct grant {
    uint64_t to;   /* agent_id */
    uint64_t term; /* 0: none */
    uint64_t last;
    uint64_t follows; /* the newest term before it that may have saved something: those between did not */
};

/* What an agent keeps, also over its own death. Zeroed: nothing. */
struct reserve {
    uint64_t first, last; /* not granted yet; 0: none */
    uint64_t follows;     /* of the last grant to this agent; 0: there was none */
    struct grant given;   /* the last grant, for an agent that did not receive it and asks again */
};

/* Whether these terms are reserved here: a file on storage that stands for one of them is nobody's claim. */
bool reserve_has(const struct reserve *r, uint64_t term);
/* A question for a term. */
struct reserve_ask {
    uint64_t to;       /* agent_id */
    uint64_t at_least; /* above what that agent has adopted */
    uint64_t adopted;  /* by the one who is asked, when it said that nobody holds the job */
};
/* Of the one who is asked, now. */
struct reserve_owner {
    uint64_t adopted;
    uint64_t saved; /* the newest term that may have saved something, as far as it knows. Of those that it was given it
                            knows: it is their coordinator's agent */
};
/* The term that it would get; 0: none. */
uint64_t reserve_offer(const struct reserve *r, uint64_t to, uint64_t at_least);
/* Gives it away, unless another start was given one since: term 0. The one who grants must have adopted the term, and
 * have kept this, before anybody hears of it. */
struct grant reserve_give(struct reserve *r, const struct reserve_owner *owner, const struct reserve_ask *ask);
/* To the agent `to` itself: from now on the reservation is here. */
void reserve_take(struct reserve *r, const struct grant *grant);
/* A term was adopted. If it is not one that was granted here, it was claimed on storage, past this reservation. */
void reserve_adopted(struct reserve *r, uint64_t term);

/* The terms that are to be reserved for the successors of this one. False: there are enough. */
bool reserve_missing(const struct reserve *r, uint64_t term, uint64_t *first_out, uint64_t *last_out);
/* They have been reserved. */
void reserve_add(struct reserve *r, uint64_t first, uint64_t last);

/* What an agent says when it is asked who holds the job. */
struct reserve_answer {
    uint64_t adopted;
    uint64_t offer; /* 0: it has none */
};
/* The index of the answer whose offer can be taken, or UINT32_MAX: it has to be above all terms that anybody has
 * claimed or adopted. newest: the highest claimed on storage, 0 if storage was not read. */
uint32_t reserve_choose(const struct reserve_answer *answers, uint32_t count, uint64_t newest);

#endif
