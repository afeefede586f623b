/* SPDX-License-Identifier: Apache-2.0
 * Drain, publish and retention of the persistent tier, with a loss of power at any moment.
 *
 * Two nodes write one file each into the stage of a version; when both say it is synced the coordinator writes the
 * manifest, renames the stage into place, tells the world, and removes what is too old (KEEP versions stay). Power loss
 * takes anything not synced: a file's bytes, and a rename whose directory was not synced, which may be undone.
 * Claims: what has a final name is whole at every moment; what was told stays, or something newer is there.
 *
 * ORDER 0: ours
 *       1: the coordinator does not wait for both nodes
 *       2: files are reported before they are synced
 *       3: the manifest is not synced before the rename
 *       4: the world learns of it before the directory is synced
 *       5: the old version is removed before the directory of the new one is synced
 *       6: files are deleted before the version is un-published
 *       7: files are deleted after it is un-published, but before the directory is synced
 *       8: a late report of an earlier attempt counts for the current one */
#ifndef ORDER
#define ORDER 0
#endif
#define VERSIONS 2
#define KEEP 1

mtype = { ABSENT, DIRTY, SYNCED };             /* bytes of a file */
mtype = { NO_NAME, NAMED, NAME_SYNCED, UNNAMED }; /* NAMED, UNNAMED: done, but the directory is not synced */

mtype file0[VERSIONS + 1] = ABSENT, file1[VERSIONS + 1] = ABSENT, manifest[VERSIONS + 1] = ABSENT;
mtype name[VERSIONS + 1] = NO_NAME;
byte told;                /* newest version the world was told is published */
byte attempt;             /* counts drains */
byte drained0, drained1;  /* attempt that each node last reported as synced */
byte draining;            /* version, 0: none */
bool power = true;
byte losses;

#define VISIBLE(v) (name[v] == NAMED || name[v] == NAME_SYNCED)
#define WHOLE(v) (file0[v] != ABSENT && file1[v] != ABSENT && manifest[v] != ABSENT)
#define ENOUGH(reported) (reported == attempt || (ORDER == 8 && reported > 0))

/* What is left of v after the loss: anything unsynced may be there or not. */
inline settle(v)
{
    if :: file0[v] == DIRTY -> file0[v] = ABSENT :: file0[v] == DIRTY -> file0[v] = SYNCED :: file0[v] != DIRTY fi;
    if :: file1[v] == DIRTY -> file1[v] = ABSENT :: file1[v] == DIRTY -> file1[v] = SYNCED :: file1[v] != DIRTY fi;
    if
    :: manifest[v] == DIRTY -> manifest[v] = ABSENT
    :: manifest[v] == DIRTY -> manifest[v] = SYNCED
    :: manifest[v] != DIRTY
    fi;
    if
    :: name[v] == NAMED || name[v] == UNNAMED -> name[v] = NO_NAME
    :: name[v] == NAMED || name[v] == UNNAMED -> name[v] = NAME_SYNCED
    :: name[v] == NO_NAME || name[v] == NAME_SYNCED
    fi
}

/* A stage that was never renamed is swept when a term has formed. */
inline sweep(v)
{
    if
    :: name[v] == NO_NAME -> file0[v] = ABSENT; file1[v] = ABSENT; manifest[v] = ABSENT
    :: else
    fi
}

proctype Node0()
{
    byte mine;
    do
    :: atomic { power && draining != 0 && drained0 != attempt -> mine = attempt; file0[draining] = DIRTY }
        if
        :: ORDER == 2 -> skip
        :: else -> atomic { if :: power && draining != 0 && mine == attempt -> file0[draining] = SYNCED :: else fi }
        fi;
        atomic { if :: power && draining != 0 && mine == attempt -> drained0 = mine :: else fi }
    od
}

proctype Node1()
{
    byte mine;
    do
    :: atomic { power && draining != 0 && drained1 != attempt -> mine = attempt; file1[draining] = DIRTY }
        if
        :: ORDER == 2 -> skip
        :: else -> atomic { if :: power && draining != 0 && mine == attempt -> file1[draining] = SYNCED :: else fi }
        fi;
        atomic { if :: power && draining != 0 && mine == attempt -> drained1 = mine :: else fi }
    od
}

#define UP (power && era == losses) /* this coordinator, of this era, is still there */

/* Removes v: its name first, durably, then its bytes. */
inline prune(v)
{
    atomic { if :: UP && name[v] == NAME_SYNCED && ORDER != 6 -> name[v] = UNNAMED :: else fi };
    if
    :: ORDER == 7 || ORDER == 6 -> skip
    :: else -> atomic { if :: UP && name[v] == UNNAMED -> name[v] = NO_NAME :: else fi }
    fi;
    atomic { if
    :: UP && (ORDER == 6 || !VISIBLE(v)) -> file0[v] = ABSENT; file1[v] = ABSENT; manifest[v] = ABSENT
    :: else
    fi };
    atomic { if :: UP && ORDER == 6 && name[v] == NAME_SYNCED -> name[v] = UNNAMED :: else fi }
}

/* One drain of v, from its start to the removal of what is too old; power loss ends it anywhere. */
inline drain(v)
{
    atomic { if :: UP -> draining = v; attempt++ :: else fi };
    if
    :: atomic { UP && draining == v && ENOUGH(drained0) && (ORDER == 1 || ENOUGH(drained1)) -> manifest[v] = DIRTY }
    :: atomic { draining = 0 } /* given up, or lost: the next attempt may be at the same version */
    fi;
    if
    :: ORDER == 3 -> skip
    :: else -> atomic { if :: UP && draining == v -> manifest[v] = SYNCED :: else fi }
    fi;
    atomic { if :: UP && draining == v && name[v] == NO_NAME -> name[v] = NAMED :: else fi };
    atomic { if :: UP && ORDER == 4 && VISIBLE(v) -> told = v :: else fi };
    if :: ORDER == 5 && v > KEEP && UP && VISIBLE(v) -> prune(v - KEEP) :: else fi;
    atomic { if :: UP && name[v] == NAMED -> name[v] = NAME_SYNCED :: else fi };
    atomic { if :: UP && draining == v -> draining = 0; told = v :: else fi };
    if :: v > KEEP && UP && told == v && name[v] == NAME_SYNCED -> prune(v - KEEP) :: else fi
}

proctype Coordinator()
{
    byte v = 1, era;
    do
    :: v <= VERSIONS && attempt < VERSIONS + 1 ->
        era = losses;
        drain(v);
        if :: v++ :: name[v] == NO_NAME -> skip fi
    :: else -> break
    od
}

proctype Power()
{
    byte v;
    do
    :: losses < 1 ->
        atomic {
            power = false;
            losses++;
            draining = 0;
            for (v : 1 .. VERSIONS) { settle(v) }
            v = 0;
        }
        atomic {
            for (v : 1 .. VERSIONS) { sweep(v) }
            v = 0;
            power = true
        }
    :: break
    od
}

proctype Monitor()
{
    byte v;
    do
    :: atomic { VISIBLE(1) && !WHOLE(1) -> assert(false) }
    :: atomic { VISIBLE(2) && !WHOLE(2) -> assert(false) }
    :: atomic { told > 0 && !((told == 1 && VISIBLE(1)) || VISIBLE(2)) -> assert(false) }
#ifdef REACH
    :: atomic { told >= REACH -> assert(false) }
#endif
    od
}

init
{
    atomic { run Node0(); run Node1(); run Coordinator(); run Power(); run Monitor() }
}
