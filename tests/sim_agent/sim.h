/* SPDX-License-Identifier: Apache-2.0
 * Many agents in one process, over a world that is all made up: time, network, memory that outlives them, processes.
 * The agents are the product's own code, from agent.c down to the session handshake, the segments' headers and the
 * directories of published versions. Their lowest calls end here instead of in the kernel (the linker's choice: a
 * symbol that is defined here is not taken from the libraries): loop.h, pool.h, clock.h, ipc.h, link.h, uring.h,
 * memory_pages.h, sd_notify.h, catalog.h, process.h, lock.h, bounded.h, log.h; and some system calls, by --wrap.
 * Storage is a file system of the world's own.
 *
 * A schedule is its seed. There is one world in a process, since clock_ms() has no argument to find it by. */
#ifndef TCK_SIM_AGENT_SIM_H
#define TCK_SIM_AGENT_SIM_H

#include "agent/agent.h"
#include "agent/state/hard_state.h"
#include "base/ipc.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/message.h"
#include "base/pool.h"
#include "recovery/catalog.h"
#include "tiers/memory.h"
#include "tiers/peer.h"
#include "tiers/persistent.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

#define MS UINT64_C(1000) /* the world counts microseconds */
#define S  (1000 * MS)

struct host;
struct object;
struct file;
struct launch;
struct shape;

typedef void sim_fn(void *ctx);

/* ---- world.c: time, chance, whose turn it is ------------------------------------------------------------------- */

struct counts {
    uint64_t messages, bytes; /* between agents, as sent */
    uint64_t received;        /* messages */
    uint64_t transferred;     /* bytes of images that are sent, */
    uint64_t stored;          /* that are written to storage or read there */
    uint64_t frames;          /* with trainers, both ways */
    uint64_t calls;           /* of an agent's code */
    uint64_t ns;              /* of a processor, in them; 0 unless measured */
};

struct scheduled {
    uint64_t us, sequence;
    sim_fn *fn;
    void *ctx;
    struct host *host; /* NULL: the world's own */
    uint32_t life;     /* of the host's agent; in another one it does not run */
};

struct sim {
    uint64_t seed;
    uint64_t us, sequence, random;
    struct scheduled *heap;
    size_t count, cap;
    struct host *hosts;
    uint32_t host_count;
    struct host *current; /* whose code runs */
    bool verbose, measure;
    bool ended; /* the schedule is over */
    char violation[1024];
    char save_dir[256];
    struct counts sum;
    uint64_t events;
};

extern struct sim sim;

/* What a schedule may be like beside the dice, of which this takes nothing: others stay what they are when a trait is
 * added. */
enum trait {
    TRAIT_FREEZES,  /* trainers are frozen in the middle of a copy */
    TRAIT_SAME_RUN, /* a launch has the run id of the one before */
    TRAIT_SLOW,     /* bytes are on their way between agents for a while */
    TRAIT_ISOLATES, /* a node is out of all others' reach */
    TRAIT_SECOND,   /* the job is started a second time while it runs */
    TRAIT_DAMAGE,   /* copies go bad in memory */
    TRAIT_DOUBTS,   /* storage cannot tell what it has, or has lost some of it */
    TRAIT_DOMAINS,  /* two machines each are lost together */
    TRAIT_KEEPS_FEW,
    TRAIT_BASE_GOES_BAD, /* before it is protected */
    TRAIT_SLOW_DRAINS,   /* and some are asked for */
    TRAIT_OVERLOADED,    /* saves come faster than copies */
    TRAIT_RESHARDS,      /* starts come with another number of ranks, */
    TRAIT_MOVES,         /* or on other machines */
    TRAIT_CATALOG,
    TRAIT_LAST_STEP, /* the training ends with a step that is brought to storage */
    TRAIT_ASKS_STEP, /* starts ask for a given step */
    TRAIT_SPREADS,   /* trainers pass shards on to each other */
    TRAIT_NAMESAKES, /* machines have one name */
    TRAIT_TWINS_DIFFER,
    TRAIT_LAST_DRAIN_FAILS, /* the first drains of the last step do */
    TRAIT_LATE_REPORTS,     /* what a node says of its drain arrives late, and others fail meanwhile */
    TRAIT_TIMERS_FIRST,     /* an agent that was stopped runs what was due before it reads what has arrived */
    TRAIT_STANDS_STILL      /* the coordinator's agent is stopped while it recovers */
};
bool sim_trait(enum trait trait);

uint64_t sim_random(void);
uint64_t sim_between(uint64_t low, uint64_t high); /* both included */
bool sim_chance(uint32_t percent);
/* Runs fn(ctx) in delay_us; as the host's agent, if it still lives, or as the world (NULL). */
void sim_after(uint64_t delay_us, struct host *host, sim_fn *fn, void *ctx);
/* The next event; false: there is none, or the schedule is over. */
bool sim_step(void);
void sim_say(const char *fmt, ...) printf_like(1, 2);
/* A promise is broken: ends the schedule. The first one counts. */
void sim_violation(const char *fmt, ...) printf_like(1, 2);

/* ---- hosts.c: machines, their agents' lives, what outlives them ------------------------------------------------ */

struct parked {
    struct parked *next;
    char name[128];
    struct object *file;
};

struct host {
    uint32_t index;
    char name[CONFIG_NAME];
    struct config config;
    uint32_t domain;
    char *settings;      /* the same as its trainers send it */
    struct agent *agent; /* NULL: it does not run */
    struct loop *loop;
    struct link *link;
    uint32_t life;
    uint32_t heap_owner;        /* its agent, in heap.h */
    jmp_buf death;              /* of _exit */
    uint32_t dies_in;           /* so many things that it does; 0: it does not */
    bool deaf;                  /* storage refuses this host */
    uint64_t hangs_until_us;    /* calls to storage return then */
    uint64_t stopped_until_us;  /* its agent does not run (SIGSTOP) */
    uint64_t short_until_us;    /* of memory: some jobs cannot be given to a pool */
    bool noisy;                 /* some chunks that it receives have wrong bytes */
    bool interrupts;            /* something happens while it sends its next chunk, */
    bool isolates;              /* once it has sent its next READY */
    uint64_t isolated_until_us; /* it has no connections */
    bool gone;                  /* the machine is down */
    bool ran;                   /* its agent's code, since the judge looked */
    bool changed;               /* or what lies in its memory, perhaps */
    pid_t pid;
    struct object *listener;
    struct parked *parked;
    struct object *sockets;           /* its agent's ends */
    uint64_t adopted;                 /* highest term that it was seen to have adopted */
    struct version watermark;         /* newest commit that it was seen to know of, */
    uint64_t decided_in;              /* and by a decision of which term; */
    struct version knows;             /* newest one since it was set up, */
    struct version restored;          /* and version restored */
    uint64_t lost_us;                 /* when its memory was lost last */
    uint64_t judged_term, judged_seq; /* the decision of its coordinator that was judged last */
    struct counts counts;
};

void hosts_make(uint32_t count, const char *config_text);
void host_start(struct host *host);
/* Its agent dies; its supervisor starts another in restart_us. */
void host_kill_agent(struct host *host, uint64_t restart_us);
/* How long a stopped agent does nothing before it continues. */
void host_stop_agent(struct host *host, uint64_t for_us);
/* Its agent and its supervisor die, and with them what was kept; trainers live. */
void host_forget(struct host *host, uint64_t restart_us);
/* With all its memory; another machine of the same name comes in return_us. */
void host_lose(struct host *host, uint64_t return_us);
/* That this process has had. */
uint64_t processor_ns(void);
/* Says what lies in its memory. */
void host_show_slots(const struct host *host);
/* The agent does something that others see: it may die here. */
void host_does_something(void);
/* Calls fn(ctx) as the host's agent and does what its loop does after a callback. */
void host_run(struct host *host, sim_fn *fn, void *ctx);

/* ---- loop.c ----------------------------------------------------------------------------------------------------- */

void loop_after_callback(struct loop *loop);
bool loop_is_stopped(const struct loop *loop);
/* The object may have become readable. */
void object_wake(struct object *object);
/* Work that the current agent waits for. */
void pools_work(struct host *host);

/* ---- objects.c: descriptors that no kernel knows ---------------------------------------------------------------- */

enum object_kind { OBJECT_MEMORY, OBJECT_SOCKET, OBJECT_LISTENER, OBJECT_PROCESS, OBJECT_FILE, OBJECT_OTHER };

struct frame {
    struct frame *next;
    struct ipc_frame ipc; /* descriptors as numbers of the receiver */
    struct object *to;
};

struct object {
    enum object_kind kind;
    uint32_t refs; /* descriptors, mappings and who else holds it */
    struct loop_fd *source;
    /* memory */
    uint8_t *base;
    uint64_t bytes;
    /* socket; a listener's connections wait in its queue */
    struct object *other;
    struct frame *first, **end;
    uint64_t arrives_us;
    bool hung_up;
    struct host *host; /* of an agent's end */
    struct object *next_socket;
    void (*got)(void *ctx, struct ipc_frame *frame); /* of a trainer's end; frame NULL: it is cut */
    void *ctx;
    /* process */
    pid_t pid;
    /* file or directory of storage */
    struct file *file;
    uint64_t position;
    bool appends;
};

struct object *object_new(enum object_kind kind);
void object_ref(struct object *object);
void object_unref(struct object *object);
int object_fd(struct object *object); /* a new descriptor */
struct object *object_of(int fd);     /* NULL: it is the kernel's */
void fd_close(int fd);
/* The descriptor is this object's from now on; takes a reference over. */
void object_replace(int fd, struct object *object);

/* ---- slot_uses.c ---------------------------------------------------------------------------------------------------
 */

/* From now on until slot_use_end(who) the slot with these bytes must not be given to anybody; or until the agent dies
 * (NULL: whoever dies). */
void slot_use_begin(const void *who, const void *at, const char *what, const struct host *agent);
void slot_use_end(const void *who);
/* A trainer restores from there; the slot's bytes have gone bad. */
void slot_use_restore(const void *who, const void *at);
void slot_use_damaged(const void *image);

/* ---- files.c: storage -------------------------------------------------------------------------------------------- */

/* Whether the current host is cut off; then errno says so. */
bool storage_refuses(void);
int file_open(int dir_fd, const char *name, int flags);
void file_closed(struct file *file);
ssize_t file_write(int fd, const void *from, size_t len);
void file_stat(const struct file *file, struct stat *out);

/* ---- storage_doubts.c ----------------------------------------------------------------------------------------------
 */

struct entry;
/* Opening this entry of the directory fails for the current host. */
bool doubts_hide(const struct file *dir, const struct entry *entry);
/* What the current host sees in the directory; NULL: an error, as errno says. */
const struct entry *doubts_list(const struct file *dir);
void doubts_claimed(const struct file *dir);
bool doubts_of_notes(void);
void doubts_plan(void);
/* Something goes bad, or cannot be read until then. */
void doubts_strike(uint64_t until_us);

#define VERSION_MOST ((struct version){UINT64_MAX, UINT64_MAX})

struct published_version {
    struct version version;
    bool torn;
};
/* The newest published version below at->version; false: there is none. */
bool published_next(struct published_version *at);

/* ---- catalog.c ------------------------------------------------------------------------------------------------------
 */

void catalog_lose(const struct host *host);
/* There are catalogs, and none was lost yet. */
bool catalog_is_complete(void);

/* ---- damage.c -------------------------------------------------------------------------------------------------------
 */

void damage_plan(void);
/* A bit of this verified slot flips. */
void damage_slot(struct host *host, struct segment *segment, uint32_t k);
/* The host's copy went bad once; whether it was fetched again since is not known here. */
/* This version was restored: copies of it go bad that are the only ones, before there are others. */
void damage_base(const struct shape *shape, struct version base);
void damage_only_copies(const struct shape *shape, struct version version);
/* In the image that a host sends, if it is one. */
void damage_sent(struct host *host, const void *image);
/* In one of the copies of what was committed last, when nothing is saved any more; false: in none. */
bool damage_at_rest(const struct shape *shape, struct version version);
bool damage_is_known(const struct host *host, struct hash128 shard, struct version version);
uint32_t damage_count(struct version version);

/* ---- bases.c --------------------------------------------------------------------------------------------------------
 */

void bases_plan(void);
/* The job must not end yet. */
bool bases_wait(const struct launch *launch);
/* One more rank has sealed this step. */
void bases_sealed(struct launch *launch, uint64_t step);
/* Its trainers have restored. */
void bases_restored(struct launch *launch);
/* How long a chunk is on its way for that. */
uint64_t bases_slowness_us(void);

/* ---- ipc.c ------------------------------------------------------------------------------------------------------ */

/* A trainer connects; NULL: no agent listens. */
struct object *ipc_join(struct host *host, pid_t pid, void (*got)(void *ctx, struct ipc_frame *frame), void *ctx);
void ipc_hang_up(struct object *socket);

/* ---- processes.c ------------------------------------------------------------------------------------------------ */

pid_t process_begin(void (*killed)(void *ctx), void *ctx);
void process_end(pid_t pid);

/* ---- link.c ----------------------------------------------------------------------------------------------------- */

/* Of a host whose agent has died. */
void link_lost(struct link *link);
/* Cuts what there is between two agents. */
void link_cut(struct host *a, struct host *b);
/* Nothing arrives there for so long; then all of it does. */
void link_stall(struct host *a, struct host *b, uint64_t for_us);

/* Cuts all that a host has with others, and lets it make none for so long. */
void link_isolate(struct host *host, uint64_t for_us);

/* ---- launch.c, rank.c: trainers ---------------------------------------------------------------------------------- */

enum phase {
    PHASE_HELLO,
    PHASE_CLAIM,
    PHASE_JOIN,
    PHASE_REGISTER,
    PHASE_MAP,
    PHASE_RESTORE,
    PHASE_TRAIN,
    PHASE_DETACH,
    PHASE_OVER
};

struct rank_shard {
    struct msg_segment segment;
    uint64_t image_bytes;
    struct object *data, *meta;
    uint32_t slot; /* granted */
};

struct rank {
    struct launch *launch;
    uint32_t number;
    struct host *host;
    pid_t pid;
    struct object *socket; /* NULL: not connected */
    uint32_t seq, asked;   /* seq of the request under way, 0 none */
    bool connecting, greeted, claimed, joined, registered, restored, detached, arrived;
    struct rank_hello hello;
    struct shared_status *status;
    struct object *status_file;
    struct rank_shard *shards;
    uint32_t shard_count, mapped;
    uint64_t saving;                  /* step being copied, 0 none */
    bool copying;                     /* it has slots for it */
    uint64_t freezes_us;              /* in the middle of its next copy, for so long */
    uint64_t asked_step, sealed_step; /* newest that was begun, that was sealed */
    bool was_cut;                     /* and the agent that it is back at may not know of those */
    uint64_t committed, published, failed;
    struct version version; /* restored */
    bool fresh, resharded;
    bool lacks[2]; /* its node has not this shard: a twin passes it on */
    char passed_over[PASSED_TEXT_BYTES];
};

/* How the state is cut, and which machines it is on: another start may have it otherwise. */
struct shape {
    uint32_t number; /* of how it is cut */
    uint32_t ranks_per_host, ranks, twins;
    uint32_t first_host, hosts; /* one after the other, from the last on to the first */
};

struct launch {
    const struct shape *shape;
    uint32_t number;
    enum phase phase;
    uint64_t phase_us;   /* since when */
    uint64_t claimed_us; /* when it began to claim its term */
    struct rank *ranks;
    uint32_t count, arrived;
    uint64_t term;
    struct world world;
    uint64_t step, steps;        /* done, to do */
    uint64_t last_step, last_us; /* being brought to storage, since when; 0: not yet */
    bool rests;                  /* it saves nothing any more */
    uint32_t last_aborts;        /* of last steps, although nothing fails any more */
    bool dead;
    char run_id[32];
    bool takes_over; /* it is configured to */
    uint64_t began_us;
    uint64_t asked_step; /* to restore; or TCK_NEWEST */
    bool spreads;        /* its ranks pass shards on to each other */
    bool noted;          /* when it claimed its term, storage said that something was committed */
    bool forged;         /* its ranks send a world in which two machines have one name */
    struct launch *next; /* older */
};

/* What the job is like. */
struct job {
    struct shape shapes[2], newest; /* what there may be; of the newest launch */
    uint32_t shards;                /* of a rank: 1 or 2 */
    uint32_t image_bytes;
    uint64_t step_us, steps;
    uint64_t stagger_us; /* ranks come to a phase within that time */
    uint32_t save_every, store_every;
    uint32_t copies;
    uint32_t kept; /* published versions that retention keeps */
    struct launch *launch;
    struct launch *second;         /* started beside it, and has no term yet */
    uint64_t committed, published; /* of this launch, as its trainers were told */
    uint32_t launches, restores, commits, publishes;
    bool back;       /* the next launch has the layout of what was saved */
    bool done, lost; /* lost: what was saved is, and that was told */
};
extern struct job job;

void launch_begin(void *unused);
/* All trainers are killed; another launch comes in again_us. */
void launch_fail(struct launch *launch, uint64_t again_us, const char *why);
void launch_arrived(struct rank *rank);
/* A rank has claimed a term. */
void launch_claimed(struct rank *rank, uint64_t term);
/* The job is started a second time, by another launcher. */
void launch_second(void);
/* A rank's agent has refused. */
void launch_refused(struct rank *rank, const struct error *err);
/* The next one has its state cut in the other way: that is what there is. */
void launch_reshape(const struct launch *launch);
void launch_host_lost(struct host *host);
/* It saves nothing any more. */
bool launch_rests(const struct launch *launch);
/* Whether the start that has this term asked for a given step. */
bool launch_asked_step_in(uint64_t term);

void rank_next(struct rank *rank);
/* Asks for the term after its own, though it has one; false: it cannot now. */
bool rank_claim_again(struct rank *rank);
/* It may be frozen in the middle of a copy: then it goes on with that some time, and ends later. */
void rank_kill(struct rank *rank);
/* At once. */
void rank_end(struct rank *rank);
/* The ranks could not pass on what some of them lack. */
void rank_restore_again(struct rank *rank);
/* All ranks have their bytes. */
void rank_restored(struct rank *rank);
void rank_save(struct rank *rank, uint64_t step, bool to_storage, bool last);
void rank_shard_ids(const struct shape *shape, uint32_t rank, struct shard_info out[2]);
/* A bit each. */
uint64_t shape_hosts(const struct shape *shape);
/* What the image of a shard is at a version. */
void image_fill(uint8_t *image, uint64_t bytes, struct hash128 shard, struct version version);
bool image_is(const uint8_t *image, uint64_t bytes, struct hash128 shard, struct version version);

/* ---- judge.c ------------------------------------------------------------------------------------------------------
 */

void judge_event(void); /* after every event */
/* Slots of the shard, or bytes in them, may be others now; shard NULL: of any. */
void judge_memory_changed(struct host *host, const struct hash128 *shard);
void judge_gone_back(struct version base);
void judge_restored(struct launch *launch);
/* All ranks were told that nothing can be had. */
void judge_unrecoverable(const struct launch *launch, const struct error *err);
/* Nothing was saved for a while, and nothing failed. */
void judge_settled(const struct launch *launch);
void judge_sealed(const struct rank *rank, uint64_t step);
void judge_host_lost(struct host *host);
void judge_damaged(const struct host *host, struct hash128 shard, struct version version);
/* save_dir no longer says that something was committed. */
void judge_note_emptied(void);
/* A published version went bad. */
void judge_torn(struct version version);
/* What is committed by this decision, is owed to storage. */
void judge_drain_asked(const struct decision *d);
/* This name leaves the job's directory. */
void judge_removed(const char *name);
/* All of it, for a world too large to be judged after every event. */
void judge_look(void);
/* Checks that what is published was sealed by all ranks. */
void judge_published(struct version version);

/* Its agent counts a copy in its memory, and its bytes are right. */
bool judge_has_copy(const struct host *host, const struct shard_info *shard, struct version version);

/* ---- judge_bases.c --------------------------------------------------------------------------------------------------
 */

/* What its coordinator decides of a term's base. */
void judge_base(const struct decision *d);

/* ---- judge_decisions.c ----------------------------------------------------------------------------------------------
 */

/* Of the coordinator that runs there, if one does. */
void judge_decision(struct host *host);
bool judge_is_over(struct version version);
bool judge_is_committed(struct version version); /* and nothing newer is */
/* Trainers believe that it will never be committed. */
void judge_told_failed(struct version version);

/* ---- judge_saves.c --------------------------------------------------------------------------------------------------
 */

/* What stands on the rank's status page. */
void judge_told(struct rank *rank);
/* A slot's header changes. */
void judge_header(const struct slot_header *before, const struct slot_header *now);
/* Another agent's copy of this version is given a slot. */
void judge_copy_taken(const struct agent *agent, struct version version);
/* A rank that asked for room for the training's last step. */
void judge_last_refused(const struct rank *rank, const struct error *err);

/* ---- judge_storage.c ------------------------------------------------------------------------------------------------
 */

/* The newest version that is promised to be on storage. */
struct version stored_promise(void);
void stored_told(struct version version);
void stored_restored(uint64_t term, struct version version);
/* Storage says, or may say, that a term before this one has committed something. */
bool stored_notes(uint64_t term);
/* All ranks read it there, in another layout than it has. */
void stored_resharded(struct launch *launch, struct version version);
/* The newest damaged version that is newer than this one, in words; NULL: there is none. */
const char *stored_passed_over(struct version version);
void judge_end(void);

/* ---- scale.c, main.c ----------------------------------------------------------------------------------------------
 */

/* One version of a large job, with what each of its phases costs, as a table or as a JSON object a line. */
void scale_run(uint32_t hosts, uint32_t ranks_per_host, bool json);
/* All ranks have come to the end of their launch's phase, */
void scale_phase_over(const struct launch *launch);
/* to its training. */
void scale_train(struct launch *launch);
/* As the job wants them; hasty: with short time-outs. */
void make_hosts(uint32_t hosts, uint32_t slots, bool hasty);

/* ---- faults.c -----------------------------------------------------------------------------------------------------
 */

struct faults {
    bool any;
    uint64_t until_us; /* none after this */
    uint64_t last_us;  /* when the newest was over */
    uint32_t count;
};
extern struct faults faults;
void faults_plan(void);
/* How long a fault takes, in microseconds; it is over then. */
uint64_t faults_lasting(uint64_t low_ms, uint64_t high_ms);
/* A chunk goes from a host that interrupts: for how long it is on its way. */
uint64_t faults_interrupt(struct host *from, struct host *to, const void *chunk);
/* The training's last step is about to be saved; this host's agent decides on it. */
void faults_strike_last(struct host *coordinator);
/* This host's agent forms a term and asks the others what they have. */
void faults_strike_recovery(struct host *coordinator);
/* A fault is over then. */
void faults_last(uint64_t us);

#endif
