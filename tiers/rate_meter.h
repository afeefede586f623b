/* SPDX-License-Identifier: Apache-2.0
 * How much one agent sends to another one to measure how fast that goes, and the rate that follows. Pure: the caller
 * sends, and has the clock.
 *
 * The first chunk is small, alone, and not counted: it finds out what a slow network can take, and its time includes
 * what a connection does only once. Those after it grow, at most twofold each time, until one takes METER_CHUNK_NS. So
 * what is on its way at any time takes a few times as long, even over a slow network: whatever else is sent waits no
 * longer than that. */
#ifndef TCK_TIERS_RATE_METER_H
#define TCK_TIERS_RATE_METER_H

#include <stdbool.h>
#include <stdint.h>

#define METER_CHUNK_LEAST (UINT32_C(64) << 10)
#define METER_CHUNK_MOST  (UINT32_C(4) << 20)
#define METER_WINDOW      4u /* chunks on their way at once */
#define METER_CHUNK_NS    UINT64_C(10000000)
#define METER_BYTES       (UINT64_C(256) << 20) /* this much ends a measurement, */
#define METER_NS          UINT64_C(250000000)   /* and so does this time since the first chunk arrived */

/* All zeros at the beginning. */
struct rate_meter {
    uint64_t sent, arrived;       /* bytes */
    uint64_t from_bytes, from_ns; /* what had arrived first, and when; 0: nothing has */
    uint64_t last_ns;             /* when the other side has confirmed what arrived last */
    uint32_t chunk;               /* the size of the next one; 0: the first one is still to be sent */
};

struct rate {
    uint64_t bytes, ns; /* ns 0: nothing was measured */
};

/* Whether another chunk is to be sent, and its size, which then counts as sent. */
bool meter_wants_more(const struct rate_meter *meter, uint64_t now_ns);
uint32_t meter_send(struct rate_meter *meter);
/* So many bytes have arrived until now. False if that cannot be. */
bool meter_arrived(struct rate_meter *meter, uint64_t bytes, uint64_t now_ns);
/* All that was sent has arrived. */
bool meter_is_quiet(const struct rate_meter *meter);
struct rate meter_rate(const struct rate_meter *meter);
/* Whether that is enough to rely on, if the measurement has to end now. */
bool meter_suffices(const struct rate_meter *meter);

#endif
