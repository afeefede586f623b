/* SPDX-License-Identifier: Apache-2.0
 * How a term is claimed, and the job's secret made, in a store of objects.
 *
 * The server knows one condition: a value is stored only if its key is free (PUT with If-None-Match: *). A request may
 * take effect and lose its answer, take effect after its sender has given it up, take effect twice, never arrive, or be
 * answered with an error that says nothing about its effect. Starts that list the same terms ask for the same one. At
 * most one of them may get it, and none may count itself as beaten by its own value; those that end undecided have no
 * term, whatever of theirs still arrives.
 *
 * RULE 0: ours. Each claim writes a value of its own. "The key is taken" is resolved by reading the key: by this value,
 *         then it is ours. An error that passes, or no answer, is followed by the same request again, and in the end by
 *         giving up.
 *      1: the server does not know the condition
 *      2: "the key is taken" is not resolved: it counts as beaten
 *      3: starts of the same node write the same value
 *      4: a request without an answer counts as one that has succeeded
 *      5: a request is sent again without the condition
 *      6: a conflict (HTTP 409) counts as beaten, too
 *      7: a secret whose request has ended undecided is used
 *      8: a reserved term that is not needed is removed, by a request that may take effect twice
 * WHAT 0: terms  1: the secret, which all must read alike
 * REACH 1: is a claim recognized whose answer was lost?  2: is one beaten?  3: does one arrive after it was given up?
 *       4: are both terms claimed? */
#ifndef RULE
#define RULE 0
#endif
#ifndef WHAT
#define WHAT 0
#endif
#ifndef REACH
#define REACH 0
#endif
#ifndef STARTS
#define STARTS   2
#endif
#define TERMS    2
#define KEYS     (TERMS + 1) /* key 0 is the secret */
#define ATTEMPTS 2
#ifndef LATE
#define LATE     2 /* requests of one start for one key that are still on their way */
#endif

/* What a request ends with, as its sender sees it. */
#define STORED   1
#define TAKEN    2
#define CONFLICT 3 /* HTTP 409: has had no effect, and may succeed the next time */
#define UNKNOWN  4 /* HTTP 500, a cut connection, no answer */

#define FREE     0
#define RESERVED 9

byte value[KEYS];          /* who has written it: FREE, or a number from 1 on */
byte owners[KEYS];         /* starts that have this term */
byte late[STARTS * KEYS];  /* requests on their way, of this start for this key */
byte secret;               /* the one that the first start has read; FREE: none */
bool given_up[STARTS];

/* Two starts of one node differ in nothing but the random number in their values. */
#define VALUE(s) (RULE == 3 && s == 1 -> 1 : s + 1)

/* The server carries out a request. */
inline store(s, k, conditional, result)
{
    if
    :: value[k] == FREE || !conditional || RULE == 1 -> value[k] = VALUE(s); result = STORED
    :: else -> result = TAKEN
    fi
}

/* One request, from the moment at which it is sent to the one at which its sender stops to wait for it. */
inline request(s, k, conditional, answer)
{
    if
    :: true -> store(s, k, conditional, answer)
    :: true -> store(s, k, conditional, answer); store(s, k, conditional, answer) /* sent again by a proxy or libcurl */
    :: true -> store(s, k, conditional, answer); answer = UNKNOWN                 /* the answer is lost */
    :: late[s * KEYS + k] < LATE -> late[s * KEYS + k]++; answer = UNKNOWN
    :: late[s * KEYS + k] < LATE -> late[s * KEYS + k]++; store(s, k, conditional, answer)
    :: answer = UNKNOWN /* it never arrives */
    :: answer = CONFLICT
    fi
}

/* What was sent before takes effect now. */
proctype Network()
{
    byte i, ignored;
    do
    :: atomic {
        i = 0;
        do
        :: i < STARTS * KEYS - 1 -> i++
        :: late[i] > 0 -> break
        od;
        late[i]--;
        if
        :: REACH == 3 && given_up[i / KEYS] -> assert(value[i % KEYS] != FREE)
        :: else
        fi;
        store(i / KEYS, i % KEYS, true, ignored) }
    od
}

/* Creates the key: ends with STORED, TAKEN (by another value) or UNKNOWN. */
inline create(s, k)
{
    attempt = 0;
    lost = false;
    do
    :: atomic { attempt < ATTEMPTS ->
        request(s, k, (RULE != 5 || attempt == 0), answer);
        attempt++;
        if
        :: answer == UNKNOWN && RULE == 4 -> answer = STORED; break
        :: answer == CONFLICT && RULE == 6 -> break
        :: answer == STORED || answer == TAKEN -> break
        :: else -> lost = lost || (REACH == 1 && answer == UNKNOWN)
        fi }
    :: attempt == ATTEMPTS -> answer = UNKNOWN; break
    od;
    if
    :: answer == CONFLICT -> answer = TAKEN
    :: atomic { answer == TAKEN && RULE != 2 -> /* reads the key, an instant later */
        if
        :: value[k] == VALUE(s) -> answer = STORED; assert(REACH != 1 || !lost)
        :: else
        fi }
    :: else /* decided, or UNKNOWN */
    fi;
    attempt = 0;
    lost = false
}

/* An agent reserves the first term and ends. */
proctype Reserver()
{
    atomic { value[1] == FREE -> value[1] = RESERVED };
    if
    :: atomic { RULE == 8 && value[1] == RESERVED -> value[1] = FREE };
        value[1] = FREE /* once more, later */
    :: RULE != 8
    fi
}

proctype Start(byte s)
{
    byte term = 1, attempt, answer;
    bool lost;
    atomic { /* lists the terms, and asks for the lowest above all of them */
        do
        :: term <= TERMS && value[term] != FREE -> term++
        :: else -> break
        od };
    do
    :: term <= TERMS ->
        create(s, term);
        atomic {
            if
            :: answer == STORED ->
                owners[term]++;
                assert(owners[term] == 1);
                assert(value[term] == VALUE(s));
                assert(REACH != 4 || owners[1] + owners[2] < 2);
                break
            :: answer == TAKEN ->
                assert(REACH != 2);
                assert(RULE == 8 || value[term] != FREE); /* another claim has it */
                assert(RULE == 3 || RULE == 8 || value[term] != VALUE(s));
                term++
            :: answer == UNKNOWN -> given_up[s] = (REACH == 3); break
            fi }
    :: else -> break
    od
}

/* Every node of a job needs the secret. */
proctype Node(byte s)
{
    byte attempt, answer = STORED, read = FREE;
    bool lost;
    if
    :: atomic { value[0] != FREE -> read = value[0] }
    :: value[0] == FREE ->
        create(s, 0);
        atomic {
            if
            :: answer == UNKNOWN && RULE != 7 -> given_up[s] = (REACH == 3)
            :: answer == UNKNOWN && RULE == 7 -> read = VALUE(s); answer = STORED
            :: else -> read = value[0]
            fi }
    fi;
    atomic {
        if
        :: answer != UNKNOWN ->
            assert(read != FREE);
            assert(secret == FREE || secret == read);
            secret = read
        :: else
        fi }
}

init {
    byte start;
    atomic {
        run Network();
        if
        :: WHAT == 0 -> run Reserver(); start = 0; do :: start < STARTS -> run Start(start); start++ :: else -> break od
        :: WHAT == 1 -> start = 0; do :: start < STARTS -> run Node(start); start++ :: else -> break od
        fi }
}
