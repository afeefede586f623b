/* SPDX-License-Identifier: Apache-2.0
 * Pauses of the training's traffic, and what fits into them. */
#include "core/net_phase.h"

#define BUSY_SHARE   0.1   /* of the peak: acknowledgements and heartbeats are less */
#define FRAMING      1.08  /* bytes on the wire per byte of a chunk, with room */
#define CREDIT_EXTRA 65536 /* a chunk's header, and what else the agents say meanwhile */
#define PAUSE_MIN_NS 4000000u
#define REST_PAUSES  2.0      /* times its longest pause: the training does something else now, without the network */
#define HIDDEN_NS    5000000u /* a few samples */
#define SMOOTHING    8

void phase_restart(struct net_phase *p)
{
    p->at_ns = 0;
    p->since_ns = 0;
    p->busy = false;
    p->credit = 0;
}

/* Behind a chunk of ours the training's bytes show late: the pause may have ended as soon as that chunk was sent. */
static uint64_t pause_end(const struct net_phase *p, uint64_t now_ns)
{
    bool behind = p->in_flight > 0 || (p->arrived_ns != 0 && now_ns < p->arrived_ns + HIDDEN_NS);
    return behind && p->began_ns > p->since_ns ? p->began_ns : now_ns;
}

static void turn(struct net_phase *p, bool busy, uint64_t now_ns)
{
    uint64_t lasted_ns = pause_end(p, now_ns) - p->since_ns;
    if (busy && p->since_ns != 0 && lasted_ns >= PAUSE_MIN_NS) {
        p->pauses[p->pause_count++ % PHASE_PAUSES] = lasted_ns;
    }
    p->busy = busy;
    p->since_ns = now_ns;
}

/* Bytes that are not ours, since the last sample. Ours are taken to go first. */
static double foreign(struct net_phase *p, double sent)
{
    double ours = sent < p->credit ? sent : p->credit;
    p->credit -= ours;
    return sent - ours;
}

void phase_sample(struct net_phase *p, uint64_t counter, uint64_t now_ns)
{
    if (p->at_ns != 0 && now_ns > p->at_ns && counter >= p->counter) {
        double took_ns = (double)(now_ns - p->at_ns), sent = (double)(counter - p->counter);
        p->peak = sent / took_ns > p->peak ? sent / took_ns : p->peak;
        bool busy = foreign(p, sent) / took_ns > BUSY_SHARE * p->peak;
        if (busy != p->busy) {
            turn(p, busy, now_ns);
        }
    }
    p->at_ns = now_ns;
    p->counter = counter;
}

void phase_sent(struct net_phase *p, uint64_t bytes, uint64_t now_ns)
{
    if (p->in_flight++ == 0) {
        p->chunk_from_ns = now_ns;
        p->began_ns = now_ns;
    }
    p->credit += (double)bytes * FRAMING + CREDIT_EXTRA;
}

void phase_arrived(struct net_phase *p, uint64_t now_ns)
{
    double took_ns = (double)(now_ns - p->chunk_from_ns);
    p->began_ns = p->chunk_from_ns;
    p->arrived_ns = now_ns;
    p->chunk_ns = p->chunk_ns > 0 ? p->chunk_ns + (took_ns - p->chunk_ns) / SMOOTHING : took_ns;
    p->chunk_from_ns = now_ns;
    p->in_flight -= p->in_flight > 0;
    if (p->in_flight == 0) {
        p->credit = 0;
    }
}

bool phase_fits(const struct net_phase *p, uint64_t now_ns)
{
    uint32_t known = p->pause_count < PHASE_PAUSES ? p->pause_count : PHASE_PAUSES;
    double elapsed_ns = (double)(now_ns - p->since_ns), needs_ns = p->chunk_ns * (double)(p->in_flight + 1);
    double longest_ns = 0;
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
    bool rests = elapsed_ns > REST_PAUSES * longest_ns;
    return p->since_ns != 0 && (rests || (longer > 0 && fitting * 10 >= longer * 9));
}
