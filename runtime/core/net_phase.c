/* SPDX-License-Identifier: Apache-2.0
 * Pauses of the training's traffic, and what fits into them. */
#include "core/net_phase.h"

#define BUSY_SHARE   0.1   /* of the peak: acknowledgements and heartbeats are less */
#define FRAMING      1.08  /* bytes on the wire per byte of a chunk, with room */
#define EXTRA_BYTES  65536 /* a chunk's header, and what else the agents say meanwhile */
#define PEAK_NS      20000000u
#define SAMPLE_NS    1000000u  /* no shorter ones: they would show single packets */
#define START_NS     60000000u /* so long it may take until a chunk begins to leave: its receiver is asked first */
#define HIDDEN_NS    5000000u  /* a few samples */
#define PAUSE_MIN_NS 4000000u
#define LONGER_MAX   32u
#define LONGER_MIN   4u
#define REST_PAUSES  2.0   /* times the longest one of its last pauses, */
#define REST_NS      250e6 /* and this: then the training rests */
#define REST_KNOWN   32u

void phase_restart(struct net_phase *p)
{
    p->at_ns = 0;
    p->window_from_ns = 0;
    p->window_bytes = 0;
    p->since_ns = 0;
    p->busy = false;
    p->ours = 0;
    p->framing = 0;
}

bool phase_hides(const struct net_phase *p, uint64_t now_ns)
{
    return p->ours > 0 || (p->gone_ns != 0 && now_ns < p->gone_ns + HIDDEN_NS);
}

/* Behind bytes of ours the training's show late: the pause may have ended as soon as ours were sent. */
static bool is_behind(const struct net_phase *p, uint64_t now_ns)
{
    return phase_hides(p, now_ns) && p->sent_ns >= p->since_ns;
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

/* Bytes that are not ours, of those since the last sample. Ours are taken to go first. If nothing goes, they are gone
 * but for what was added for framing, or have not begun to leave. */
static double foreign(struct net_phase *p, double sent, double took_ns, uint64_t now_ns)
{
    double ours = sent < p->ours ? sent : p->ours;
    bool waits = p->ours > 0;
    bool gone = p->ours <= p->framing || now_ns > p->sent_ns + START_NS;
    p->ours = gone && sent <= BUSY_SHARE * p->peak * took_ns ? 0 : p->ours - ours;
    if (waits && p->ours <= 0) {
        p->gone_ns = now_ns;
        p->framing = 0;
    }
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
    p->framing += on_wire(bytes) - (double)bytes;
    p->sent_ns = now_ns;
}

uint64_t phase_needs_ns(const struct net_phase *p, uint64_t bytes)
{
    return p->peak > 0 ? (uint64_t)((p->ours + on_wire(bytes)) / p->peak) : 0;
}

/* The training does something else now, without the network. */
static bool phase_rests(const struct net_phase *p, uint32_t known, double elapsed_ns)
{
    double longest_ns = 0;
    for (uint32_t i = 1; i <= known && i <= REST_KNOWN; i++) {
        double pause_ns = (double)p->pauses[(p->pause_count - i) % PHASE_PAUSES];
        longest_ns = pause_ns > longest_ns ? pause_ns : longest_ns;
    }
    return elapsed_ns > REST_PAUSES * longest_ns && elapsed_ns > REST_NS;
}

/* Of the newest pauses that lasted for as long as this one does already, nearly all must have been long enough. The few
 * that are left of a pause's usual length say nothing of how long this one will be: so there must be some. */
static bool was_enough(const struct net_phase *p, uint32_t known, double elapsed_ns, double needs_ns)
{
    uint32_t longer = 0, fitting = 0;
    for (uint32_t i = 1; i <= known && longer < LONGER_MAX; i++) {
        double pause_ns = (double)p->pauses[(p->pause_count - i) % PHASE_PAUSES];
        longer += pause_ns >= elapsed_ns;
        fitting += pause_ns >= elapsed_ns + needs_ns;
    }
    uint32_t least = known < LONGER_MIN * LONGER_MIN ? (known + LONGER_MIN - 1) / LONGER_MIN : LONGER_MIN;
    return longer >= least && fitting * 20 >= longer * 19;
}

bool phase_fits(const struct net_phase *p, uint64_t bytes, uint64_t now_ns)
{
    uint32_t known = p->pause_count < PHASE_PAUSES ? p->pause_count : PHASE_PAUSES;
    double elapsed_ns = (double)(now_ns - p->since_ns);
    double needs_ns = (double)phase_needs_ns(p, bytes);
    if (p->busy || known == 0) {
        return !p->busy;
    }
    if (p->since_ns == 0 || elapsed_ns < PAUSE_MIN_NS) {
        return false; /* a gap within the training's traffic looks the same so far */
    }
    return phase_rests(p, known, elapsed_ns) || was_enough(p, known, elapsed_ns, needs_ns);
}
