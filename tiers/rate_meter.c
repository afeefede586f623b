/* SPDX-License-Identifier: Apache-2.0
 * How much one agent sends to another one to measure how fast that goes, and the rate that follows. */
#include "tiers/rate_meter.h"

#define SUFFICES_NS (METER_NS / 5)

bool meter_wants_more(const struct rate_meter *meter, uint64_t now_ns)
{
    if (meter->from_ns == 0) {
        return meter->sent == 0;
    }
    bool has_room = meter->sent - meter->arrived < METER_WINDOW * (uint64_t)meter->chunk;
    return has_room && now_ns - meter->from_ns < METER_NS && meter->sent < METER_BYTES;
}

uint32_t meter_send(struct rate_meter *meter)
{
    if (meter->chunk == 0) {
        meter->chunk = METER_CHUNK_LEAST;
    }
    meter->sent += meter->chunk;
    return meter->chunk;
}

static uint32_t next_chunk(const struct rate_meter *meter)
{
    struct rate so_far = meter_rate(meter);
    double wanted = so_far.ns == 0 ? 0 : (double)so_far.bytes * (double)METER_CHUNK_NS / (double)so_far.ns;
    double most = 2.0 * meter->chunk < METER_CHUNK_MOST ? 2.0 * meter->chunk : METER_CHUNK_MOST;

    wanted = wanted < METER_CHUNK_LEAST ? METER_CHUNK_LEAST : wanted;
    return (uint32_t)(wanted < most ? wanted : most);
}

bool meter_arrived(struct rate_meter *meter, uint64_t bytes, uint64_t now_ns)
{
    if (bytes <= meter->arrived || bytes > meter->sent) {
        return false;
    }
    meter->arrived = bytes;
    meter->last_ns = now_ns;
    if (meter->from_ns == 0) {
        meter->from_bytes = bytes;
        meter->from_ns = now_ns;
    }
    meter->chunk = next_chunk(meter);
    return true;
}

bool meter_is_quiet(const struct rate_meter *meter)
{
    return meter->arrived == meter->sent;
}

struct rate meter_rate(const struct rate_meter *meter)
{
    return (struct rate){.bytes = meter->arrived - meter->from_bytes, .ns = meter->last_ns - meter->from_ns};
}

bool meter_suffices(const struct rate_meter *meter)
{
    struct rate rate = meter_rate(meter);

    return rate.ns >= SUFFICES_NS || (rate.ns > 0 && rate.bytes >= METER_BYTES / 2);
}
