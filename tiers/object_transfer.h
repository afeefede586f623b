/* SPDX-License-Identifier: Apache-2.0
 * Work on a store of objects in steps that several threads carry out at once, since each step blocks. Begun and ended
 * in the loop's thread. */
#ifndef TCK_TIERS_OBJECT_TRANSFER_H
#define TCK_TIERS_OBJECT_TRANSFER_H

#include "tiers/persistent_impl.h"

struct transfer {
    struct persistent *p;
    struct progress *progress;                                               /* NULL: not tracked */
    uint32_t count, width;                                                   /* steps; of these at once */
    tck_status_t (*step)(struct transfer *t, uint32_t i, struct error *err); /* by any thread */
    uint64_t (*bytes)(const struct transfer *t, uint32_t i); /* that a step sends; NULL: it is not throttled */
    bool (*given_up)(const struct transfer *t);              /* NULL: never */
    void (*stepped)(struct transfer *t, uint32_t i);         /* this step has succeeded; NULL: not of interest */
    void (*ended)(struct transfer *t);                       /* no step is under way any more; may free it */
    struct error outcome;                                    /* of the first step that has failed */
    uint32_t next, running;
    uint64_t paid; /* of the bytes of step `next`, those that the pace has let pass */
    bool throttled;
    struct transfer *next_throttled;
};

/* Begins the steps, in order; after one that fails no other begins. Unless this returns an error, ended is called
 * later.
 */
must_check tck_status_t transfer_start(struct transfer *t, struct error *err);
/* Throttled transfers ask again. */
void transfers_resume(struct persistent *p);

#endif
