/* SPDX-License-Identifier: Apache-2.0
 * How much is sent to measure a network, over simulated ones of any speed, and what rate follows. */
#include "tiers/rate_meter.h"

#include <criterion/criterion.h>

#define WINDOW METER_WINDOW
#define MS     UINT64_C(1000000)

/* A network that carries so many bytes per second, after a delay, and one chunk after the other. */
struct network {
    double bytes_per_second;
    uint64_t delay_ns;
    uint64_t now_ns, free_ns; /* free: when the last chunk has left */
    uint64_t lands_ns[WINDOW];
    uint32_t size[WINDOW];
    unsigned head, count;
    uint64_t most_on_its_way, carried;
};

static uint64_t on_its_way(const struct network *n)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < n->count; i++) {
        bytes += n->size[(n->head + i) % WINDOW];
    }
    return bytes;
}

static void carry(struct network *n, uint32_t bytes)
{
    unsigned at = (n->head + n->count++) % WINDOW;
    uint64_t from = n->free_ns > n->now_ns ? n->free_ns : n->now_ns;
    n->free_ns = from + (uint64_t)((double)bytes * 1e9 / n->bytes_per_second);
    n->lands_ns[at] = n->free_ns + n->delay_ns;
    n->size[at] = bytes;
    n->most_on_its_way = on_its_way(n) > n->most_on_its_way ? on_its_way(n) : n->most_on_its_way;
}

/* Until everything has arrived and nothing more is wanted. */
static void measure(struct network *n, struct rate_meter *meter)
{
    n->now_ns = 1000 * MS;
    do {
        while (n->count < WINDOW && meter_wants_more(meter, n->now_ns)) {
            carry(n, meter_send(meter));
        }
        cr_assert_gt(n->count, 0);
        n->now_ns = n->lands_ns[n->head];
        n->carried += n->size[n->head];
        n->head = (n->head + 1) % WINDOW;
        n->count--;
        cr_assert(meter_arrived(meter, n->carried, n->now_ns));
    } while (!meter_is_quiet(meter) || meter_wants_more(meter, n->now_ns));
}

static double rate_of(const struct rate_meter *meter)
{
    struct rate rate = meter_rate(meter);
    return (double)rate.bytes * 1e9 / (double)rate.ns;
}

Test(rate_meter, finds_the_rate_of_networks_of_every_speed)
{
    static const double speeds[] = {1e5, 1.25e6, 1.25e7, 1.25e8, 1.25e9, 1.25e10, 5e10};
    static const uint64_t delays[] = {0, 20000, 200000};
    for (size_t s = 0; s < sizeof(speeds) / sizeof(*speeds); s++) {
        for (size_t d = 0; d < sizeof(delays) / sizeof(*delays); d++) {
            struct network n = {.bytes_per_second = speeds[s], .delay_ns = delays[d]};
            struct rate_meter meter = {0};
            measure(&n, &meter);
            cr_expect(rate_of(&meter) > 0.8 * speeds[s] && rate_of(&meter) < 1.01 * speeds[s],
                      "%g B/s and %u ns: %g B/s", speeds[s], (unsigned)delays[d], rate_of(&meter));
            cr_expect(meter_suffices(&meter) || speeds[s] > 1e10);
        }
    }
}

Test(rate_meter, has_little_on_its_way_over_a_slow_network)
{
    struct network n = {.bytes_per_second = 1.25e7};
    struct rate_meter meter = {0};
    measure(&n, &meter);
    cr_expect_leq(n.most_on_its_way, (uint64_t)(5 * 1.25e7 * METER_CHUNK_NS / 1e9));
    cr_expect_lt(meter.sent, (uint64_t)(1.25e7 * 2 * METER_NS / 1e9));
}

Test(rate_meter, sends_no_more_than_its_limit_over_a_fast_network)
{
    struct network n = {.bytes_per_second = 1e11};
    struct rate_meter meter = {0};
    measure(&n, &meter);
    cr_expect_geq(meter.sent, METER_BYTES);
    cr_expect_lt(meter.sent, METER_BYTES + METER_CHUNK_MOST);
}

Test(rate_meter, waits_for_the_first_chunk_and_does_not_count_it)
{
    struct rate_meter meter = {0};
    cr_expect(meter_wants_more(&meter, MS));
    cr_expect_eq(meter_send(&meter), METER_CHUNK_LEAST);
    cr_expect_not(meter_wants_more(&meter, MS));
    cr_expect(meter_arrived(&meter, METER_CHUNK_LEAST, 900 * MS));
    cr_expect_eq(meter_rate(&meter).bytes, 0);
    cr_expect_eq(meter_rate(&meter).ns, 0);
    cr_expect(meter_wants_more(&meter, 900 * MS));
    cr_expect_not(meter_suffices(&meter));
}

Test(rate_meter, refuses_what_cannot_have_arrived)
{
    struct rate_meter meter = {0};
    meter_send(&meter);
    cr_expect_not(meter_arrived(&meter, METER_CHUNK_LEAST + 1, MS), "more than was sent");
    cr_expect_not(meter_arrived(&meter, 0, MS), "nothing new");
    cr_expect(meter_arrived(&meter, METER_CHUNK_LEAST, MS));
    cr_expect_not(meter_arrived(&meter, METER_CHUNK_LEAST, 2 * MS), "the same again");
    cr_expect_not(meter_arrived(&meter, 1, 2 * MS), "less than before");
    cr_expect_eq(meter.arrived, METER_CHUNK_LEAST);
}

/* Whatever the connection has accepted counts as on its way until it is confirmed. */
Test(rate_meter, no_more_is_sent_than_a_window_ahead_of_what_has_arrived)
{
    struct rate_meter meter = {0};
    uint32_t first = meter_send(&meter), sent = 0;
    cr_assert(meter_arrived(&meter, first, 1000 * MS));
    while (sent < 100 && meter_wants_more(&meter, 1001 * MS)) {
        (void)meter_send(&meter);
        sent++;
    }
    cr_expect_eq(sent, METER_WINDOW);
    cr_assert(meter_arrived(&meter, meter.sent, 1002 * MS));
    cr_expect(meter_wants_more(&meter, 1002 * MS));
}
