/* SPDX-License-Identifier: Apache-2.0
 * Why the term is part of what a copy is called, and why the new term is adopted before it writes.
 *
 * Two ranks save; each one's shard is stored at the other's node. After a failure a second formation of the world saves
 * under term 2, while a process of term 1 may still send. A version counts as complete if both stores hold the step.
 *
 * FENCE 0: copies are named by step alone, the last write wins
 *       1: a node drops messages of a term older than it has seen, but versions are still named by step
 *       2: ours: versions are named (term, step), and all reachable nodes adopt the term before it saves anything */
#ifndef FENCE
#define FENCE 2
#endif
#define STEPS 2

byte stored_step[2], stored_term[2]; /* newest copy of each shard */
byte adopted[2];
byte newest_term = 1;
chan net = [4] of { byte, byte, byte }; /* shard, step, term */

proctype Rank(byte shard; byte term)
{
    byte step = 1;
    do
    :: step <= STEPS -> net!shard, step, term; step++
    :: step > STEPS -> break
    :: term < newest_term -> /* left over from before the failure: one more message, or none */
        if
        :: net!shard, step, term
        :: skip
        fi;
        break
    od
}

proctype Node()
{
    byte shard, step, term;
    do
    :: atomic { net?shard, step, term ->
        if
        :: FENCE >= 1 && term < adopted[shard] -> skip
        :: else ->
            stored_step[shard] = step;
            stored_term[shard] = term;
            if
            :: FENCE >= 1 && term > adopted[shard] -> adopted[shard] = term
            :: else
            fi
        fi }
    od
}

proctype Failover()
{
    atomic {
        newest_term = 2;
        if
        :: FENCE == 2 -> adopted[0] = 2; adopted[1] = 2
        :: else
        fi
    }
    run Rank(0, 2);
    run Rank(1, 2)
}

#define LOOKS_COMPLETE                                                                                                 \
    (stored_step[0] == stored_step[1] && stored_step[0] > 0 && (FENCE < 2 || stored_term[0] == stored_term[1]))

proctype Monitor()
{
    do
    :: atomic { LOOKS_COMPLETE && stored_term[0] != stored_term[1] -> assert(false) } /* a mix of two lineages */
#ifdef REACH
    :: atomic { LOOKS_COMPLETE && stored_term[0] == REACH -> assert(false) }
#endif
    od
}

init
{
    atomic {
        adopted[0] = 1;
        adopted[1] = 1;
        run Rank(0, 1);
        run Rank(1, 1);
        run Node();
        run Failover();
        run Monitor()
    }
}
