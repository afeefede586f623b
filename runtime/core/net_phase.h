/* SPDX-License-Identifier: Apache-2.0
 * When the training leaves the network alone. Pure.
 *
 * A network interface's counter says how many bytes have left it; less those that are ours, they are the training's.
 * Training repeats itself: after it has been quiet for a while, the past pauses that lasted at least that long say for
 * how long it will be quiet yet. A chunk goes if it fits into what was left of nearly all such pauses. That it was
 * handed to the network does not mean that it has left: it may wait in the kernel for longer than it then takes. */
#ifndef TCK_CORE_NET_PHASE_H
#define TCK_CORE_NET_PHASE_H

#include <stdbool.h>
#include <stdint.h>

#define PHASE_PAUSES 256

/* Zeroed: nothing is known, and the network counts as quiet. */
struct net_phase {
    uint64_t at_ns, counter;       /* of the last sample; 0: none */
    uint64_t window_from_ns;       /* of the sum that a peak is taken from, */
    double window_bytes;           /* and the sum */
    double peak;                   /* bytes per ns, the most that was seen */
    double ours;                   /* bytes of ours that the counter has yet to show */
    double framing;                /* what of them was added for framing, so may not be there */
    uint64_t sent_ns;              /* when the last of ours were handed to the network, */
    uint64_t gone_ns;              /* and when the counter had shown them all */
    bool busy;                     /* the training sends, */
    uint64_t since_ns;             /* or has not since; 0: it was never seen to begin or end */
    uint64_t pauses[PHASE_PAUSES]; /* how long its last pauses were */
    uint32_t pause_count;          /* ever seen */
};

/* The counter's value now. After a gap in sampling, call phase_restart first. */
void phase_sample(struct net_phase *p, uint64_t counter, uint64_t now_ns);
void phase_restart(struct net_phase *p);
/* Bytes of ours were handed to the network. */
void phase_sent(struct net_phase *p, uint64_t bytes, uint64_t now_ns);
/* Whether bytes of ours hide whether the training sends. */
bool phase_hides(const struct net_phase *p, uint64_t now_ns);
/* How long so many more take to get through, after those that wait. */
uint64_t phase_needs_ns(const struct net_phase *p, uint64_t bytes);
/* Whether so many more are likely to get through before the training sends again. */
bool phase_fits(const struct net_phase *p, uint64_t bytes, uint64_t now_ns);

#endif
