/* SPDX-License-Identifier: Apache-2.0
 * At which times within a step the training uses the network. Pure.
 *
 * Steps repeat themselves, so a step's time is cut into parts, and each part remembers for the last steps whether the
 * training's traffic was seen in it. Pauses alone (net_phase.h) do not tell a short gap within an all-reduce from the
 * long pause before it, nor when a pause that is unusually long will end. What was sent by us hides what the training
 * sends, so such times are not known. */
#ifndef TCK_CORE_NET_STEPS_H
#define TCK_CORE_NET_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#define NET_STEPS_PARTS 64

/* Zeroed: nothing is known. */
struct net_steps {
    uint64_t begun_ns; /* the present step; 0: not known */
    uint64_t part_ns;
    /* A bit per step, the present one's is the lowest. */
    uint32_t busy[NET_STEPS_PARTS], known[NET_STEPS_PARTS];
};

/* A step has begun; they usually take step_ns. */
void net_steps_begin(struct net_steps *s, uint64_t at_ns, uint64_t step_ns);
/* The present step's begin is not known any more. */
void net_steps_pause(struct net_steps *s);
/* Whether the training has used the network in this time. */
void net_steps_note(struct net_steps *s, uint64_t from_ns, uint64_t to_ns, bool busy);
/* Whether it usually does in the time from now_ns on; false if that is not known. */
bool net_steps_busy(const struct net_steps *s, uint64_t now_ns, uint64_t for_ns);

#endif
