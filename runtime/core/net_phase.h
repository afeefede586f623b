/* SPDX-License-Identifier: Apache-2.0
 * When the training leaves the network alone. Pure.
 *
 * A network interface's counter says how many bytes have left it; less those that are ours, they are the training's.
 * Training repeats itself: after it has been quiet for a while, the past pauses that lasted at least that long say for
 * how long it will be quiet yet. A chunk goes if it fits into what is left in nine of ten such pauses. */
#ifndef TCK_CORE_NET_PHASE_H
#define TCK_CORE_NET_PHASE_H

#include <stdbool.h>
#include <stdint.h>

#define PHASE_PAUSES 32

/* Zeroed: nothing is known, and the network counts as quiet. */
struct net_phase {
    uint64_t at_ns, counter;       /* of the last sample; 0: none */
    double peak;                   /* bytes per ns, the most that was seen */
    double credit;                 /* bytes of ours that the counter has yet to show */
    uint64_t in_flight;            /* chunks of ours */
    bool busy;                     /* the training sends, */
    uint64_t since_ns;             /* or has not since; 0: it was never seen to begin or end */
    uint64_t pauses[PHASE_PAUSES]; /* how long its last pauses were */
    uint32_t pause_count;          /* ever seen */
    uint64_t chunk_from_ns;        /* when the chunk that is the oldest in flight began to move */
    uint64_t began_ns;             /* the same of the last one, in flight or not, */
    uint64_t arrived_ns;           /* and when one last arrived */
    double chunk_ns;               /* smoothed time that one takes; 0: unknown */
};

/* The counter's value now. After a gap in sampling, call phase_restart first. */
void phase_sample(struct net_phase *p, uint64_t counter, uint64_t now_ns);
void phase_restart(struct net_phase *p);
/* A chunk of ours was handed to the network, and has reached the other side. */
void phase_sent(struct net_phase *p, uint64_t bytes, uint64_t now_ns);
void phase_arrived(struct net_phase *p, uint64_t now_ns);
/* Whether one more chunk is likely to get through before the training sends again. */
bool phase_fits(const struct net_phase *p, uint64_t now_ns);

#endif
