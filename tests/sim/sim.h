/* SPDX-License-Identifier: Apache-2.0
 * A deterministic simulator: the real protocol machines (runtime/core), placement, planner and recovery on simulated
 * machines, network, memory, storage and clock, all from one seed. After every event the promises of
 * docs/reliability.md are checked (sim_check.c). One schedule is one seed; `sim --seed S --verbose` shows its story.
 *
 *   sim_main.c     arguments, many schedules, in several processes if wanted
 *   sim.c          one schedule from start to end
 *   sim_queue.c    random numbers, the queue of things to come, the log
 *   sim_agent.c    carries out the machines' actions, as the agent does
 *   sim_save.c     trainers; digests and copies between memories
 *   sim_recover.c  terms: who is in, recovery, restore
 *   sim_storage.c  the persistent tier: stages, publish, retention, power loss
 *   sim_listing.c  what storage answers when a recovery asks it: listings, notes, and what it cannot tell now
 *   sim_second.c   a second start of a job whose trainers may be alive
 *   sim_fault.c    what goes wrong, within what is promised to be survived
 *   sim_check.c    the promises */
#ifndef TCK_TESTS_SIM_H
#define TCK_TESTS_SIM_H

#include "core/coordinator.h"
#include "core/node.h"
#include "core/retention.h"
#include "core/term.h"
#include "recovery/recovery.h"
#include <inttypes.h>

#define SIM_MACHINES  12
#define SIM_NODES     6
#define SIM_RANKS     8
#define SIM_SHARDS    12
#define SIM_SLOTS     3
#define SIM_TERMS     64
#define SIM_STEPS     4096 /* per term */
#define SIM_PUBLISHED 64
#define SIM_TASKS     8192

#define HEARTBEAT_MS       20
#define RETRY_MS           30
#define VERSION_TIMEOUT_MS 400
#define DRAIN_PAUSE_MS     30
#define DRAIN_PAUSE_MAX_MS 480
#define TRANSFER_MS        120 /* a copy that is not acknowledged by then has failed */
#define CROWDED_MS         600 /* the same where copies queue up for the link */
#define OVERLOADED_COPY_MS 100 /* and one version alone takes so long */
#define RETENTION          3
#define DIGESTED_MS        (4 * HEARTBEAT_MS) /* digests of a sealed slot are made within this */

#define V_FMT    "%" PRIu64 ".%" PRIu64
#define V_ARG(v) (v).term, (v).step

/* What a schedule may be like beside the dice; the numbers are part of the seeds' stories. */
enum trait {
    TRAIT_OVERLOADED,
    TRAIT_DRAIN_WAITS,
    TRAIT_LONG_CUTS,
    TRAIT_TEARS,
    TRAIT_REPAIRS,
    TRAIT_NAMESAKES,
    TRAIT_TWINS_DIFFER,
    TRAIT_BASE_GOES_BAD,
    TRAIT_SPREADS,
    TRAIT_FREEZES,
    TRAIT_DOUBTS = 16, /* numbers that leave most of seeds.txt their stories */
    TRAIT_NOTES = 22,
    TRAIT_SECOND_STARTS = 26,
    TRAIT_LAST_STEP = 30
};

/* ---- machines and their memory --------------------------------------------------------------------------------- */

/* A slot as it lies in memory: the header, and one number for the bytes. */
struct memory_slot {
    enum slot_state state;
    struct version version;
    struct hash128 root;
    uint64_t value;
    uint32_t writers, readers; /* trainers, transfers, digests, drains at work; the machines must respect them */
    struct version copied;     /* what the trainer at work writes */
    bool frozen;               /* the trainer at work has lost its term; it goes on some time (TASK_THAW) */
    struct version seal;       /* left by the trainer that copied everything */
    bool to_storage;           /* as the trainer began it; in the header */
    uint64_t sealed_ms;        /* when it was found or made SEALED by the agent that runs now */
    bool committed;            /* the node had learned the commit when it wrote the header */
};

struct segment {
    bool exists;
    struct memory_slot slots[SIM_SLOTS];
};

struct sim;
struct sim_term;

struct machine {
    bool alive, agent_up;
    uint32_t life;          /* of the machine: a replacement has an empty memory and another agent_id */
    uint32_t process;       /* counts starts of its agent */
    uint32_t agent;         /* counts those and the terms it left: what was begun before is void */
    uint64_t stopped_until; /* its processes are stopped */
    uint64_t clock_ahead;   /* its clock jumped */
    uint32_t group;         /* machines of different groups do not reach each other */
    struct node_info info;
    struct segment segments[SIM_SHARDS];
    uint64_t damaged_ms[SIM_SHARDS]; /* when a fault of ours last hit a copy here */
    struct term_state terms;
    struct decision kept;     /* newest one made or learned, in memory that survives the agent */
    uint64_t link_busy_until; /* overloaded: copies come in one after the other */
    /* The machines of the joined term; NULL: none runs. */
    const struct sim_term *term;
    uint32_t self; /* node of that term */
    struct node_setup node_setup;
    struct node_shard node_shards[SIM_SHARDS];
    uint32_t shard_of_local[SIM_SHARDS]; /* our shard number by index into node_shards */
    void *node_memory;
    struct node *node;
    struct coordinator_setup coordinator_setup;
    void *coordinator_memory;
    struct coordinator *coordinator;
    struct recovery *recovery;
    struct recovery_clock recovery_clock;
    const struct task *fetching; /* the request that the node machine is answering */
    bool repairing;              /* a copy that is missing here is on its way */
};

/* What storage listed. */
struct listing {
    uint32_t stored_count, unfit_count;
    struct stored_version stored[SIM_PUBLISHED];
    struct unfit_version unfit[SIM_PUBLISHED];
};

/* What became of a term's note that it has committed something. */
enum commit_note { NOTE_NONE, NOTE_WRITTEN, NOTE_MISSING, NOTE_DAMAGED };

/* ---- terms ----------------------------------------------------------------------------------------------------- */

struct trainer {
    bool alive, copying;
    bool waiting;           /* for slots */
    uint32_t agent;         /* the agent start it is connected to; another one does not know it yet */
    uint64_t asked, sealed; /* newest step it asked slots for; that it copied */
    uint64_t step;
};

struct sim_term {
    uint64_t term;
    struct world world;
    struct placement placement;
    uint32_t machine_of_node[SIM_NODES];
    uint32_t life_of_node[SIM_NODES];
    uint32_t shard_of_world[SIM_SHARDS]; /* our shard number by the world's index */
    uint32_t world_of_shard[SIM_SHARDS];
    bool drains[SIM_NODES];
    uint32_t joined;
    bool planned; /* inventories were read: what an older coordinator says after that binds nobody */
    bool training, based, base_lost;
    bool dawdles; /* storage lets its recovery wait, while it is cut off and does not notice */
    uint64_t planned_ms;
    struct version plan;
    struct version base;
    uint64_t step;
    struct trainer trainers[SIM_RANKS];
    uint8_t fates[SIM_STEPS]; /* enum fate: what was decided, once */
    uint64_t committed;       /* newest step */
    bool told_failed[SIM_STEPS];
    uint64_t first_begin[SIM_STEPS];
    uint32_t asked;           /* rounds of questions */
    bool answered[SIM_NODES]; /* the newest */
    enum commit_note commit_note;
    bool restored_noted;            /* storage has a note of the base */
    struct listing listed, claimed; /* as the recovery got it; as it was when the term was claimed */
    struct hash128 ids[SIM_SHARDS];
};

/* ---- storage --------------------------------------------------------------------------------------------------- */

struct stored_file {
    bool written, synced;
    uint64_t value;
    struct hash128 root; /* as the manifest will have it */
};

struct staged {
    bool used;
    struct version version;
    struct stored_file files[SIM_SHARDS];
    bool manifest;
    bool visible;              /* renamed into place; its manifest and files were synced before */
    bool durable;              /* the directory was synced after */
    bool torn;                 /* a file or the manifest was cut off afterwards, though it was synced */
    bool unread;               /* the manifest: the version is damaged for everybody who lists it */
    uint64_t unreadable_until; /* it cannot be read, but for its manifest if files_only */
    bool files_only;
};

/* ---- things to come -------------------------------------------------------------------------------------------- */

enum task_type {
    TASK_MESSAGE, /* event arrives from machine `from` */
    TASK_LOCAL,   /* event of this machine itself */
    TASK_REACH,   /* it tells that a node is down, or up again */
    TASK_TICK,
    TASK_STEP,     /* the trainers of a term make a step */
    TASK_BEGIN,    /* a rank wants to save */
    TASK_LAST,     /* a rank wants to save the training's last step */
    TASK_GRANTED,  /* a rank hears that it may copy */
    TASK_COPIED,   /* a rank has copied */
    TASK_THAW,     /* a frozen trainer goes on writing into its slot, whatever has become of it, and ends */
    TASK_RETURN,   /* a rank comes back to an agent that was started again */
    TASK_DIGEST,   /* digests of a sealed slot are made */
    TASK_TRANSFER, /* bytes have arrived in a slot */
    TASK_COPY_TIMEOUT,
    TASK_DRAIN,
    TASK_PUBLISH, /* slot: the process that does it */
    TASK_SWEEP,
    TASK_FORM,
    TASK_JOIN,
    TASK_INVENTORY,
    TASK_STORED,
    TASK_FETCH,
    TASK_PULLED,
    TASK_FETCHED,
    TASK_UNPIN,
    TASK_FAULT,
    TASK_CUT,
    TASK_AGENT_START,
    TASK_SECOND_ASK,   /* rank: the node that is asked */
    TASK_SECOND_JUDGE, /* the second start looks at the answers */
    TASK_HEAL,
};

struct task {
    enum task_type type;
    uint32_t machine, agent; /* agent: void if that one is gone; NONE32: any */
    uint32_t from, from_life;
    uint32_t asker, asker_agent; /* who waits for a pull */
    uint32_t rank, slot, shard, phase;
    uint8_t source;
    uint64_t number;
    uint64_t term;
    struct version version;
    tck_status_t outcome;
    struct event event;
};

/* What must hold for the newest decided version: every promised copy not lost to a fault of ours is there. */
struct anchor {
    struct version version; /* VERSION_NONE: nothing decided yet */
    bool in_memory;         /* false: only storage is promised to have it */
    uint32_t tolerance;     /* fault domains */
    bool promised[SIM_SHARDS][SIM_MACHINES];
};

/* A start by another launcher, on its way to a term. */
struct second_start {
    uint64_t term; /* the newest one as it began; 0: there is none */
    uint64_t began_ms;
    uint32_t machine;
    bool answered[SIM_NODES], held[SIM_NODES];
};

/* Its time stands in the heap itself: putting things in order must not touch the tasks. */
struct queued {
    uint64_t at, order;
    uint32_t task;
};

struct totals {
    uint64_t schedules, events, commits, recoveries, from_storage, publishes, faults;
    uint64_t superseded_plans; /* of terms after which another had planned: see check_plan */
    uint64_t lost_bases;
};

struct sim {
    uint64_t seed, random, now, order;
    bool verbose, failed, calm; /* calm: no more faults */
    bool settles;               /* this schedule looks at the end whether everything comes to rest */
    bool long_cuts;             /* a machine stays cut off through several terms, and comes back alone */
    bool spreads;               /* trainers get what their node lacks from each other: one owner of a shard suffices */
    bool twins_differ;          /* what data-parallel copies should be equal is not, in some versions */
    bool repairs;               /* copies that go bad are found, and fetched again from others */
    bool tears;                 /* storage loses parts of what it said was safe */
    bool freezes;               /* trainers that lose their term may be frozen while they copy, and wake up later */
    bool doubts;                /* storage cannot always tell what it has */
    bool second_starts;         /* by launchers that know nothing of each other */
    bool notes;                 /* terms note their first commit, as far as storage keeps the notes */
    bool overloaded;            /* saves come far faster than the copies can follow, from start to end */
    uint32_t calm_commits;      /* of versions that were begun when all was healed */
    uint64_t calm_at, quiet_at; /* quiet: no trainer is left; 0: not yet */
    /* what this schedule is like */
    uint32_t nodes, ranks, shards, slots, copies, per_domain, mem_every, storage_every, loss, duplicate, fault_every,
        notice;
    uint32_t rank_shards[SIM_RANKS][2], rank_shard_count[SIM_RANKS];
    uint32_t seats[SIM_NODES]; /* machines of the newest term */
    struct machine machines[SIM_MACHINES];
    struct sim_term *terms[SIM_TERMS]; /* by term; [0] unused */
    uint64_t claimed;
    bool form_pending;
    struct staged stages[SIM_PUBLISHED];
    struct anchor anchor;
    struct version newest_published; /* and whole */
    struct version owed;             /* to storage: a storage version, or what the user asked for */
    struct version last_step;        /* of the training, when all is quiet; VERSION_NONE: not yet, or it is published */
    uint32_t last_tries;
    bool last_refused;
    uint64_t storage_full_until, storage_hangs_until;
    struct second_start second;
    uint64_t moved;                              /* the newest term when the job moved; 0: it did not */
    uint64_t unlisted_until, notes_unread_until; /* storage answers with an error */
    uint64_t storage_lost_ms;                    /* when it last lost what was not synced */
    uint64_t last_destroyed_ms;
    uint32_t destroyed; /* fault domains hit since the anchor's save began */
    bool touched;       /* memory changed: check it */
    /* queue */
    struct task tasks[SIM_TASKS];
    struct queued heap[SIM_TASKS];
    uint32_t heap_count;
    uint32_t unused[SIM_TASKS], unused_count;
    struct totals totals;
};

/* sim.c */

/* Runs this seed's schedule; false if it broke a promise, which is printed. */
bool sim_run(struct sim *s, uint64_t seed, bool verbose);

/* sim_queue.c */
uint64_t sim_random(struct sim *s, uint64_t below);
bool sim_chance(struct sim *s, uint32_t per_mille);
uint64_t sim_between(struct sim *s, uint64_t low, uint64_t high);
/* A trait that this seed's schedule has or has not. It takes nothing from the dice: others keep their stories. */
bool sim_trait(const struct sim *s, enum trait trait, uint32_t per_mille);
void sim_queue_clear(struct sim *s);
/* A zeroed task to fill in, `after` ms from now. */
struct task *sim_after(struct sim *s, uint64_t after, enum task_type type, uint32_t machine);
/* The same thing once more, so much later. */
void sim_again(struct sim *s, const struct task *from, uint64_t after);
bool sim_next(struct sim *s, struct task *out);
void sim_log(const struct sim *s, const char *fmt, ...) printf_like(2, 3);
/* Ends the schedule: a promise was broken. */
void sim_fail(struct sim *s, const char *fmt, ...) printf_like(2, 3);

/* sim_agent.c */
bool sim_reach(const struct sim *s, uint32_t a, uint32_t b);
/* Whether b can send bytes to a now. */
bool sim_answers(const struct sim *s, uint32_t a, uint32_t b);
/* What the machine's clock says. */
uint64_t sim_clock(const struct sim *s, uint32_t machine);
/* Feeds the event to the machine's node or coordinator and carries the actions out. */
void agent_feed(struct sim *s, uint32_t machine, struct event event);
void agent_message(struct sim *s, const struct task *t);
void agent_tick(struct sim *s, uint32_t machine);
/* Starts the node machine (and the coordinator on node 0) of a joined term from what memory holds. */
void agent_join(struct sim *s, uint32_t machine, const struct sim_term *term);
void agent_stop(struct sim *s, uint32_t machine);
void agent_start(struct sim *s, uint32_t machine);
/* Somebody reads the slot for so long. */
void agent_pin(struct sim *s, uint32_t machine, uint32_t local_slot, uint64_t ms);
void agent_unpin(struct sim *s, const struct task *t);
struct memory_slot *agent_slot(struct sim *s, uint32_t machine, uint32_t local_slot);
void sim_send(struct sim *s, uint32_t from, uint32_t to, const struct event *event);
/* Who speaks for an older term is told of the newer one. */
void agent_tell_stale(struct sim *s, uint32_t machine, uint32_t to);

/* sim_save.c */
uint64_t sim_value(uint32_t shard, struct version version);
/* Whether some rank saved these bytes. */
bool sim_was_saved(const struct sim *s, uint32_t shard, struct version version, uint64_t value);
struct hash128 sim_root(uint64_t value);
void save_step(struct sim *s, const struct task *t);
void save_begin_rank(struct sim *s, const struct task *t);
/* The training ends: its ranks save one more step, and ask for slots until they have them. Called again if that step is
 * aborted: the ranks would form a new term and save it there. */
void save_last_step(struct sim *s);
void save_begin_last(struct sim *s, const struct task *t);
/* A save is refused. Trainers continue, unless it was the last step and the refusal is permanent. */
void save_refused(struct sim *s, uint32_t machine, const struct action *a);
void save_granted(struct sim *s, uint32_t machine, const struct action *a);
void save_copy(struct sim *s, const struct task *t);
void save_copied(struct sim *s, const struct task *t);
void save_return(struct sim *s, const struct task *t);
/* What happens to the trainers of a machine when its agent stops and when it is back. */
void save_agent_stopped(struct sim *s, uint32_t machine);
void save_agent_started(struct sim *s, uint32_t machine);
/* The trainer at work on this slot no longer belongs to any term: it is gone, or frozen. */
void save_orphan_writer(struct sim *s, uint32_t machine, uint32_t shard, uint32_t slot);
void save_thaw(struct sim *s, const struct task *t);
/* The agent looks which writers of slots in quarantine are gone. */
void save_release_slots(struct sim *s, uint32_t machine);
/* The trainer ends between two instructions. */
void save_trainer_dies(struct sim *s, struct sim_term *term, uint32_t rank);
/* The agent looks for seals of trainers that are gone. */
void save_take_seals(struct sim *s, uint32_t machine);
void save_digest(struct sim *s, const struct task *t);
void save_replicate(struct sim *s, uint32_t machine, const struct action *a);
void save_copy_timeout(struct sim *s, const struct task *t);
void save_store(struct sim *s, uint32_t machine, const struct action *a);
void save_transfer(struct sim *s, const struct task *t);

/* sim_recover.c */
struct sim_term *sim_newest_term(const struct sim *s);
void recover_form_soon(struct sim *s);
/* Whether the newest term trains, with all of its agents and trainers. */
bool recover_stands(const struct sim *s);
void recover_form(struct sim *s);
/* A job that trains is started again on other machines; those that it leaves keep their memory. */
void recover_move(struct sim *s);
void recover_join(struct sim *s, const struct task *t);
void recover_begin(struct sim *s, uint32_t machine);
void recover_tick(struct sim *s, uint32_t machine);
void recover_refused(struct sim *s, uint32_t machine, const struct event *refused);
void recover_inventory(struct sim *s, const struct task *t);
void recover_stored(struct sim *s, const struct task *t);
void recover_fetch(struct sim *s, const struct task *t);
void recover_fetch_slot(struct sim *s, uint32_t machine, const struct action *a);
/* Fetches a copy of the newest commit that should be here and is not. */
void recover_repair(struct sim *s, uint32_t machine);
void recover_pulled(struct sim *s, const struct task *t);
void recover_fetched(struct sim *s, const struct task *t);
void sim_term_free(struct sim_term *term);

/* sim_storage.c */
void storage_drain(struct sim *s, uint32_t machine, const struct action *a);
void storage_drained(struct sim *s, const struct task *t);
void storage_publish(struct sim *s, uint32_t machine, const struct action *a);
void storage_publish_step(struct sim *s, const struct task *t);
void storage_power_loss(struct sim *s);
/* This must be published, or something newer. */
void storage_owe(struct sim *s, struct version version);
/* The next one comes with a commit, and perhaps none does: nothing is owed until then. */
/* A published version loses the end of a file, or of its manifest. */
void storage_tear(struct sim *s);
/* Full, or so slow that nothing ends, for a while. */
void storage_trouble(struct sim *s);
/* Whether all files of the version are written, published or not. */
bool storage_has_all(const struct sim *s, struct version version);
void storage_sweep_soon(struct sim *s, uint32_t machine);
void storage_sweep(struct sim *s, const struct task *t);
uint64_t storage_delay(struct sim *s, uint64_t low, uint64_t high);
const struct staged *storage_find(const struct sim *s, struct version version);

/* All that is visible, newest first; out has SIM_PUBLISHED places. */
uint32_t storage_versions(const struct sim *s, const struct staged **out);
/* Whether `version` is of the history that led to `head`. */
bool storage_is_ancestor(const struct sim *s, struct version version, struct version head);

/* sim_listing.c */
/* Something that storage has cannot be read for a while, or storage does not say what it has. */
void listing_doubt(struct sim *s);
bool listing_is_unreadable(const struct sim *s, const struct staged *stage);
void listing_take(const struct sim *s, const struct sim_term *term, struct listing *out);
/* The answer to the recovery of this term; it points into the term. */
struct storage_view listing_answer(struct sim *s, struct sim_term *term);
void listing_note_commit(struct sim *s, struct sim_term *term);
void listing_note_restored(struct sim *s, struct sim_term *term);

/* sim_second.c */
void second_start(struct sim *s);
void second_ask(struct sim *s, const struct task *t);
void second_judge(struct sim *s);
/* Trainers of a machine that was cut off would claim the next term. */
void second_return(struct sim *s, uint32_t machine);

/* sim_fault.c */
void fault_strike(struct sim *s);
/* A drain is asked for, and the coordinator's agent dies with all that it alone knew of it. */
void fault_ask_and_crash(struct sim *s);
/* A copy of what was decided last goes bad, and that is found at once. */
void fault_damage_base(struct sim *s, const struct sim_term *term);
void fault_damage_found(struct sim *s);
void fault_cut_off(struct sim *s, uint32_t machine);
/* NONE32: the whole network. */
void fault_heal(struct sim *s, uint32_t machine);
void fault_tell_reach(struct sim *s, const struct task *t);
/* Whether this many more fault domains may be hit without breaking what is promised. */
bool fault_tolerable(const struct sim *s, uint32_t domains);
void fault_count(struct sim *s, uint32_t domains);
void fault_lose_machine(struct sim *s, uint32_t machine);

/* sim_check.c */
void check_decision(struct sim *s, uint32_t machine);
void check_memory(struct sim *s);
/* A copy that was missing is here again: as good as promised. */
void check_repaired(struct sim *s, uint32_t machine, uint32_t shard, struct version version);
void check_restore(struct sim *s, uint32_t machine, struct version version);
/* A recovery that began again in a term whose trainers run. */
void check_same_base(struct sim *s, const struct sim_term *term, struct version version);
void check_plan(struct sim *s, struct sim_term *term, struct version version);
/* What a plan says of the versions that it does not take. */
void check_choice(struct sim *s, const struct sim_term *term, const struct recovery *recovery);
/* Retention removes `version` after `published` was published. */
void check_pruned(struct sim *s, struct version version, struct version published);
void check_storage(struct sim *s);
/* What the trainers of a node are told. */
void check_told(struct sim *s, uint32_t machine, const struct action *a);
/* A version is published only when all of it was written. */
void check_publish(struct sim *s, uint32_t machine, const struct action *a);
/* Two machines under one name are in no world, whether it is built or received. */
void check_namesakes(struct sim *s, const struct rank_hello *hellos, const struct world *world);
/* Every shard in as many domains, and on as many nodes, as are wanted or there. */
void check_placement(struct sim *s, const struct sim_term *term);
void check_fenced(struct sim *s, uint32_t machine);
/* All is healed and nobody trains: nothing is left over. */
void check_settled(struct sim *s);
void check_header(struct sim *s, uint32_t machine, uint32_t local_slot);
/* An agent that starts takes the slot for `found`. */
void check_found(struct sim *s, uint32_t machine, const struct memory_slot *memory, enum slot_state found);
void check_sealed(struct sim *s, uint32_t machine);

#endif
