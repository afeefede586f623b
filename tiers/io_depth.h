/* SPDX-License-Identifier: Apache-2.0
 * How many requests to storage are in flight at once. A local disk is busy with a few, and more of them only wait in
 * its queue; behind a network or a file system in user space, a request takes its time however little it waits, and
 * many must be in flight to use what the other side can do. The time that requests take tells these apart. Only
 * requests of the usual size are compared, so for files that are smaller than one, the depth stays where it is. Pure.
 */
#ifndef TCK_TIERS_IO_DEPTH_H
#define TCK_TIERS_IO_DEPTH_H

#include <stdbool.h>
#include <stdint.h>

struct io_depth {
    uint32_t now; /* in flight at most */
    uint32_t least, most;
    uint64_t quickest_ns; /* request since the last pause; 0: none has returned */
    uint64_t sum_ns;      /* of the requests counted below */
    uint32_t count;       /* that returned since `now` was last decided, while as many as that were in flight */
};

struct io_depth io_depth_new(uint32_t least, uint32_t most);
/* A request of the usual size has returned; `full`: as many as allowed were in flight. */
void io_depth_returned(struct io_depth *d, uint64_t ns, bool full);
/* Nothing is in flight: what comes next may go to other storage, so the quickest request is measured once more. */
void io_depth_paused(struct io_depth *d);

#endif
