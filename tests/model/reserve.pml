/* SPDX-License-Identifier: Apache-2.0
 * Why a job may be started again while storage is away.
 *
 * Agent 0 coordinates term 1 and has reserved terms on storage for its successors. Starts come to either agent. With
 * storage a start may also claim the lowest number above all files there; without it an agent must grant it a reserved
 * one. A start that has a term restores at that moment. What a lower term publishes after that would be newer than what
 * was restored, without anybody noticing: it must not happen. Nor may two starts get the same term.
 *
 * RULE 0: ours. Who grants a term adopts it first and hands on the rest of the reservation; a claim on storage
 *         takes a number above all reserved ones, and ends lower terms, which see its file.
 *      1: who grants a term does not adopt it
 *      2: the granting agent keeps the remainder, and the receiver has it, too
 *      3: a claim on storage takes the lowest number that is not claimed, reserved or not
 *      4: what is reserved ends lower terms, as a claim does
 *      5: a term that is over reserves terms, too
 *      6: who is given a term takes it also if another start on the same agent has had it; an answer that was lost is
 *         given again to the same agent
 * REACH 1: is it so that a start ever gets a term while storage is away?  2: that a term is refused its publish? */
#ifndef RULE
#define RULE 0
#endif
#ifndef REACH
#define REACH 0
#endif
#define TERMS  6
#define STARTS 3

#define FREE     0
#define RESERVED 1
#define CLAIMED  2

byte file[TERMS + 1];     /* on storage */
byte owner_of[TERMS + 1]; /* starts that have this term */
byte first[2], last[2];   /* reserved by this agent, not granted; first 0: nothing */
byte adopted[2];
byte given_to[2];         /* what this agent has given last, and to whom; 2: to none */
byte given[2], given_last[2];
byte claimed[2];          /* the newest reserved term that this agent has taken */
byte coordinates[2];      /* the newest term that this agent coordinates; 0: none */
byte restored = 1;        /* the highest term of which a start has restored */
bool away = false;        /* storage */
byte starts = 0;

/* The start has this term, on agent a. What it saved before, any term, is what it restores. */
inline begins(a, term)
{
    owner_of[term] = owner_of[term] + 1;
    assert(owner_of[term] == 1);
    if
    :: term > restored -> restored = term
    :: else
    fi;
    if
    :: term > adopted[a] -> adopted[a] = term
    :: else
    fi;
    coordinates[a] = term
}

proctype Storage()
{
    do
    :: away = !away
    od
}

/* Agent a reserves two terms above all files, if its own is the newest that is claimed. */
proctype Reserver(byte a)
{
    byte n, top;
    bool over;
    do
    :: atomic { !away && first[a] == 0 && coordinates[a] != 0 && coordinates[a] == adopted[a] ->
        over = false;
        top = 0;
        n = 1;
        do
        :: n <= TERMS ->
            if
            :: file[n] != FREE -> top = n
            :: else
            fi;
            if
            :: file[n] == CLAIMED && n > coordinates[a] && RULE != 5 -> over = true
            :: else
            fi;
            n++
        :: else -> break
        od;
        if
        :: over || top + 2 > TERMS -> break
        :: else ->
            file[top + 1] = RESERVED; file[top + 2] = RESERVED;
            first[a] = top + 1; last[a] = top + 2;
            given_to[a] = 2
        fi }
    od
}

/* Agent g gives agent a a term, or again what it gave it before. */
inline give(g, a, at_least, seen)
{
    n = 0;
    if
    :: g != a && given_to[g] == a && given[g] >= at_least -> n = given[g]; upto = given_last[g]
    :: else ->
        if
        :: first[g] != 0 && first[g] >= at_least && adopted[g] == seen ->
            n = first[g];
            upto = last[g];
            first[g] = (RULE == 2 && n < last[g] -> n + 1 : 0);
            if
            :: g != a -> given_to[g] = a; given[g] = n; given_last[g] = upto
            :: else
            fi;
            if
            :: RULE != 1 && n > adopted[g] -> adopted[g] = n
            :: else
            fi
        :: else
        fi
    fi
}

/* Agent a takes what it was given for one of its starts, unless another one has had it. */
inline take(a)
{
    if
    :: n != 0 && (RULE == 6 || (n > claimed[a] && n >= adopted[a])) ->
        claimed[a] = n;
        first[a] = (n < upto -> n + 1 : 0);
        last[a] = upto;
        begins(a, n);
        if
        :: REACH == 1 -> assert(!away)
        :: else
        fi
    :: else -> n = 0
    fi
}

/* A start on agent a; g is the agent that it asks. */
proctype Start(byte a)
{
    byte n = 0, g, upto, at_least, seen;
    if
    :: g = 0
    :: g = 1
    fi;
    if
    :: atomic { first[g] != 0 && first[g] > adopted[g] && first[g] > adopted[a] -> /* of a third, nothing is heard */
        at_least = adopted[a] + 1;
        seen = adopted[g] };
        if
        :: atomic { g == a -> give(g, a, at_least, seen); take(a) }
        :: atomic { g != a -> give(g, a, at_least, seen) };
            if /* the answer comes, is lost, or is lost and asked for again */
            :: atomic { take(a) }
            :: n = 0
            :: atomic { give(g, a, at_least, seen); take(a) }
            fi
        fi;
        if
        :: atomic { !away && n != 0 -> if
            :: file[n] == RESERVED -> file[n] = CLAIMED
            :: else
            fi }
        :: skip
        fi
    :: atomic { !away -> /* no agent is asked, or none answers */
        n = TERMS;
        do
        :: n > 0 && (file[n] == FREE || (RULE == 3 && file[n] == RESERVED)) -> n--
        :: else -> break
        od;
        n++;
        if
        :: n <= TERMS -> file[n] = CLAIMED; begins(a, n)
        :: else
        fi }
    fi
}

/* Whoever coordinates a term publishes now and then, if no file says that the term is over. */
proctype Publisher(byte a)
{
    byte n;
    bool over;
    do
    :: atomic { !away && coordinates[a] != 0 && coordinates[a] == adopted[a] ->
        over = false;
        n = coordinates[a] + 1;
        do
        :: n <= TERMS ->
            if
            :: file[n] == CLAIMED || (RULE == 4 && file[n] == RESERVED) -> over = true
            :: else
            fi;
            n++
        :: else -> break
        od;
        if
        :: RULE == 4 && over -> assert(restored > coordinates[a]) /* else a term ends itself */
        :: RULE != 4 && over -> assert(REACH != 2)
        :: else -> assert(restored <= coordinates[a])
        fi }
    od
}

init {
    atomic {
        file[1] = CLAIMED;
        owner_of[1] = 1;
        adopted[0] = 1; adopted[1] = 1;
        given_to[0] = 2; given_to[1] = 2;
        coordinates[0] = 1;
        run Storage();
        run Reserver(0); run Reserver(1);
        run Publisher(0); run Publisher(1);
        run Start(0); run Start(1); run Start(1)
    }
}
