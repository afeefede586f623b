/* SPDX-License-Identifier: Apache-2.0
 * Which slot may be freed when, and what the coordinator may decide (docs/protocol.md).
 *
 * N nodes, each owns one shard and holds a copy of its left neighbour's. The coordinator, on node 0, keeps one decision
 * state: the watermark, and what is aborted above it (the code writes that as a horizon and the open versions below it).
 * It may abort an undecided version at any moment: a refusal, a time-out, a newer version reported first. A node knows
 * some earlier state of the decision. One node may crash at any moment.
 * Claim: from the first commit on, some version at least as new as the watermark is complete in living memory.
 *
 * POLICY 0: a single buffer, overwritten in place
 *        1: the older version is dropped when the newer is sealed or received
 *        2: the last two by count are kept
 *        3: the known watermark and the newest are kept
 *        4: ours: freed only if the known decision says it is over; without a slot the save is refused
 * COORD  0: ours
 *        1: commits with one node missing
 *        2: forgets what it aborted
 * ACK    0: ours, after the copy is stored;  1: before */
#ifndef POLICY
#define POLICY 4
#endif
#ifndef COORD
#define COORD 0
#endif
#ifndef ACK
#define ACK 0
#endif
#ifndef ABORTS /* 0: the coordinator aborts nothing, which is enough to see the worse policies fail */
#define ABORTS 1
#endif
#ifndef SLOTS
#define SLOTS 3
#endif
#ifndef MAXV
#define MAXV 3
#endif
#define N 3
#define BIT(v) (1 << (v))
#define HOLDER(n) ((n + 1) % N)
#define HELD_FOR(n) ((n + N - 1) % N)

byte own[N], held[N];      /* versions of shard n: at its owner, at its holder */
byte copying[N], next[N];  /* version being filled, the next to save */
byte acked[N];             /* copies that the owner knows of: READY is on its way to the coordinator */
byte known_w[N], known_aborted[N];
bool alive[N];

byte watermark, aborted;

#define OVER(n, v) ((v) < known_w[n] || (known_aborted[n] & BIT(v)))
#define COUNT(x) ((((x) >> 1) & 1) + (((x) >> 2) & 1) + (((x) >> 3) & 1))
#define HAVE(s, v) ((alive[s] && (own[s] & BIT(v))) || (alive[HOLDER(s)] && (held[s] & BIT(v))))
#define COMPLETE(v) (HAVE(0, v) && HAVE(1, v) && HAVE(2, v))

/* What the policy leaves in a memory that gets v; w: the watermark known there. */
inline put(memory, v, w)
{
    if
    :: POLICY == 0 || POLICY == 1 -> memory = BIT(v)
    :: POLICY == 2 -> memory = (memory & BIT(v - 1)) | BIT(v)
    :: POLICY == 3 -> memory = (memory & BIT(w)) | BIT(v)
    :: POLICY == 4 -> memory = memory | BIT(v)
    fi
}

inline learn(n)
{
    known_w[n] = watermark;
    known_aborted[n] = aborted;
    v = 1;
    do
    :: v <= MAXV ->
        if
        :: POLICY >= 3 && OVER(n, v) ->
            own[n] = own[n] & ~BIT(v);
            held[HELD_FOR(n)] = held[HELD_FOR(n)] & ~BIT(v)
        :: else
        fi;
        v++
    :: else -> break
    od;
    v = 0
}

proctype Node(byte n)
{
    byte v;
    do
    :: atomic { alive[n] && copying[n] == 0 && next[n] <= MAXV -> /* begin */
        if
        :: POLICY == 4 && COUNT(own[n]) >= SLOTS -> skip /* refused */
        :: POLICY == 4 && OVER(n, next[n]) -> skip
        :: else ->
            copying[n] = next[n];
            if
            :: POLICY == 0 -> own[n] = 0
            :: else
            fi
        fi;
        next[n]++ }
    :: atomic { alive[n] && copying[n] != 0 -> /* seal, digests */
        put(own[n], copying[n], known_w[n]);
        if
        :: POLICY == 4 && OVER(n, copying[n]) -> own[n] = own[n] & ~BIT(copying[n])
        :: else
        fi;
        copying[n] = 0 }
    :: atomic { alive[n] && alive[HOLDER(n)] -> /* replicate one that is not there yet */
        v = 1;
        do
        :: v <= MAXV -> v++
        :: v <= MAXV && (own[n] & BIT(v)) && !(acked[n] & BIT(v)) -> break
        :: v > MAXV -> break
        od;
        if
        :: v <= MAXV ->
            if
            :: ACK == 1 -> acked[n] = acked[n] | BIT(v)
            :: POLICY == 4 && (OVER(HOLDER(n), v) || COUNT(held[n]) >= SLOTS) -> skip
            :: else -> put(held[n], v, known_w[HOLDER(n)]); acked[n] = acked[n] | BIT(v)
            fi
        :: else
        fi;
        v = 0 }
    :: atomic { alive[n] && (known_w[n] != watermark || known_aborted[n] != aborted) -> learn(n) }
    :: atomic { !alive[n] -> break }
    od
}

#define UNDECIDED(v) ((v) <= MAXV && (v) > watermark && (COORD == 2 || !(aborted & BIT(v))))
#define ALL_READY(v) (acked[0] & acked[1] & (COORD == 1 -> BIT(v) : acked[2]) & BIT(v))
#define ABORT(v)     atomic { ABORTS && alive[0] && UNDECIDED(v) && !(aborted & BIT(v)) -> aborted = aborted | BIT(v) }
#define COMMIT(v)    atomic { alive[0] && UNDECIDED(v) && ALL_READY(v) -> watermark = v }

proctype Coordinator()
{
    do
    :: ABORT(1) :: COMMIT(1)
    :: ABORT(2) :: COMMIT(2)
    :: ABORT(3) :: COMMIT(3)
    od
}

proctype Chaos()
{
    byte n;
    if :: n = 0 :: n = 1 :: n = 2 fi;
    atomic { alive[n] = false; copying[n] = 0 }
}

proctype Monitor()
{
    do
    :: atomic { watermark > 0 && !((watermark <= 1 && COMPLETE(1)) || (watermark <= 2 && COMPLETE(2)) ||
                                   (watermark <= 3 && COMPLETE(3))) -> assert(false) }
#ifdef REACH /* the model is not empty: this many commits do happen */
    :: atomic { watermark >= REACH -> assert(false) }
#endif
    od
}

init
{
    byte n;
    atomic {
        for (n : 0 .. N - 1) { alive[n] = true; next[n] = 1 }
        for (n : 0 .. N - 1) { run Node(n) }
        run Coordinator();
        run Chaos();
        run Monitor()
    }
}
