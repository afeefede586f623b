/* SPDX-License-Identifier: Apache-2.0
 * Pauses of the training's traffic, and what fits into them. */
#include "core/net_phase.h"

#define BUSY_SHARE   0.1   /* of the peak: acknowledgements and heartbeats are less */
#define FRAMING      1.08  /* bytes on the wire per byte of a chunk, with room */
#define EXTRA_BYTES  65536 /* a chunk's header, and what else the agents say meanwhile */
#define PEAK_NS      20000000u
#define SAMPLE_NS    1000000u  /* no shorter ones: they would show single packets */
#define START_NS     10000000u /* so long it may take until a chunk begins to leave */
#define HIDDEN_NS    5000000u  /* a few samples */
#define PAUSE_MIN_NS 4000000u
#define REST_PAUSES  2.0   /* times its longest pause, */
#define REST_NS      250e6 /* and this: the training does something else now, without the network */

void phase_restart(struct net_phase *p)
{
    p->at_ns = 0;
    p->window_from_ns = 0;
    p->window_bytes = 0;
    p->since_ns = 0;
    p->busy = false;
    p->ours = 0;
}

/* Behind bytes of ours the training's show late: the pause may have ended as soon as ours were sent. */
static bool is_behind(const struct net_phase *p, uint64_t now_ns)
{
    bool hidden = p->ours > 0 || (p->gone_ns != 0 && now_ns < p->gone_ns + HIDDEN_NS);
    return hidden && p->sent_ns >= p->since_ns;
}

static void turn(struct net_phase *p, bool busy, uint64_t now_ns)
{
    bool behind = is_behind(p, now_ns);
    uint64_t lasted_ns = (behind ? p->sent_ns : now_ns) - p->since_ns;
    if (busy && p->since_ns != 0 && (behind || lasted_ns >= PAUSE_MIN_NS)) {
        p->pauses[p->pause_count++ % PHASE_PAUSES] = lasted_ns;
    }
    p->busy = busy;
    p->since_ns = now_ns;
}

/* Over several samples: one alone may be late, and then shows what a queue has let through in no time. */
static void note_peak(struct net_phase *p, double sent, uint64_t now_ns)
{
    p->window_bytes += sent;
    if (now_ns >= p->window_from_ns + PEAK_NS) {
        double rate = p->window_from_ns != 0 ? p->window_bytes / (double)(now_ns - p->window_from_ns) : 0;
        p->peak = rate > p->peak ? rate : p->peak;
        p->window_from_ns = now_ns;
        p->window_bytes = 0;
    }
}

/* Bytes that are not ours, of those since the last sample. Ours are taken to go first; if nothing goes, they are gone.
 */
static double foreign(struct net_phase *p, double sent, double took_ns, uint64_t now_ns)
{
    double ours = sent < p->ours ? sent : p->ours;
    bool waits = p->ours > 0;
    bool idle = sent <= BUSY_SHARE * p->peak * took_ns && now_ns > p->sent_ns + START_NS;
    p->ours = idle ? 0 : p->ours - ours;
    p->gone_ns = waits && p->ours <= 0 ? now_ns : p->gone_ns;
    return sent - ours;
}

void phase_sample(struct net_phase *p, uint64_t counter, uint64_t now_ns)
{
    if (p->at_ns != 0 && now_ns < p->at_ns + SAMPLE_NS) {
        return;
    }
    if (p->at_ns != 0 && counter >= p->counter) {
        double took_ns = (double)(now_ns - p->at_ns), sent = (double)(counter - p->counter);
        note_peak(p, sent, now_ns);
        bool busy = foreign(p, sent, took_ns, now_ns) > BUSY_SHARE * p->peak * took_ns;
        if (busy != p->busy) {
            turn(p, busy, now_ns);
        }
    }
    p->at_ns = now_ns;
    p->counter = counter;
}

static double on_wire(uint64_t bytes)
{
    return (double)bytes * FRAMING + EXTRA_BYTES;
}

void phase_sent(struct net_phase *p, uint64_t bytes, uint64_t now_ns)
{
    p->ours += on_wire(bytes);
    p->sent_ns = now_ns;
}

bool phase_fits(const struct net_phase *p, uint64_t bytes, uint64_t now_ns)
{
    uint32_t known = p->pause_count < PHASE_PAUSES ? p->pause_count : PHASE_PAUSES;
    double elapsed_ns = (double)(now_ns - p->since_ns), longest_ns = 0;
    double needs_ns = p->peak > 0 ? (p->ours + on_wire(bytes)) / p->peak : 0;
    uint32_t longer = 0, fitting = 0;
    if (p->busy || known == 0) {
        return !p->busy;
    }
    for (uint32_t i = 0; i < known; i++) {
        double pause_ns = (double)p->pauses[i];
        longest_ns = pause_ns > longest_ns ? pause_ns : longest_ns;
        longer += pause_ns >= elapsed_ns;
        fitting += pause_ns >= elapsed_ns + needs_ns;
    }
    bool rests = elapsed_ns > REST_PAUSES * longest_ns && elapsed_ns > REST_NS;
    return p->since_ns != 0 && (rests || (longer > 0 && fitting * 10 >= longer * 9));
}
