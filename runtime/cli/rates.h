/* SPDX-License-Identifier: Apache-2.0
 * What has happened between two answers to the request "status", for `tierckpt top`. Pure. */
#ifndef TCK_CLI_RATES_H
#define TCK_CLI_RATES_H

#include "base/json.h"

struct rates {
    uint64_t step;    /* of the fastest trainer */
    double step_ms;   /* smoothed time of a step, of the slowest one; 0: there is none */
    uint64_t unsaved; /* steps since the newest commit */
    uint64_t
        undrained; /* steps since the newest version on storage of this term; since the first one if there is none */
    double steps, saves, digested, copied, received, stored; /* per second; bytes */
    double stall_ms;                                         /* of a save; negative: there was none */
};

/* `before` NULL: nothing is known of the time before, so rates are 0. Counters that have gone back count as new: the
 * agent was restarted. */
struct rates rates_between(const json_t *before, const json_t *now, double seconds);

#endif
