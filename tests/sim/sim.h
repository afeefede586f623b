/* SPDX-License-Identifier: Apache-2.0
 * Runs many agents in one process, in a simulated world: time, network, memory that outlives agents, processes. The
 * agents are the product's own code, from agent.c down to the session handshake, the segments' headers and the
 * directories of published versions. Their lowest-level calls are implemented here instead of in the kernel (the linker
 * does not take a symbol that is defined here from the libraries): loop.h, pool.h, clock.h, ipc.h, link.h, uring.h,
 * memory_pages.h, sd_notify.h, catalog.h, process.h, lock.h, bounded.h, log.h; and some system calls, by --wrap.
 * Storage is an in-memory file system.
 *
 * The seed determines the whole schedule. There is one world per process, because clock_ms() has no argument that could
 * select one. */
#ifndef TCK_SIM_SIM_H
#define TCK_SIM_SIM_H

#include "agent/agent.h"
#include "agent/state/hard_state.h"
#include "base/ipc.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/message.h"
#include "base/pool.h"
#include "core/memory_level.h"
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

/* ---- world.c: time, random choices, the event queue -------------------------------------------------------------- */

struct counts {
    uint64_t messages, bytes; /* between agents, as sent */
    uint64_t received, received_bytes;
    uint64_t transferred; /* bytes of images that are sent */
    uint64_t stored;      /* bytes that are written to or read from storage */
    uint64_t lookups;     /* on storage: names that are opened or looked at, and listings */
    uint64_t read;        /* bytes from storage, with manifests and the like */
    uint64_t frames;      /* with trainers, both ways */
    uint64_t calls;       /* of an agent's code */
    uint64_t ns;          /* CPU time of these calls; 0 unless measured */
};

struct scheduled {
    uint64_t us, sequence;
    sim_fn *fn;
    void *ctx;
    struct host *host; /* NULL: the event belongs to the world */
    uint32_t life;     /* of the host's agent: the event does not run in a later life */
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
    bool buckets;          /* TRAIT_BUCKET in every schedule */
    bool archives;         /* TRAIT_ARCHIVE in every schedule */
    bool leaders;          /* TRAIT_TREE in every schedule */
    uint32_t leaders_from; /* of a job that is measured: tree_from_nodes, */
    uint32_t twin_mib;     /* the size of the only shard, if all ranks are twins, else 0, */
    uint64_t chunk_us;     /* and how long a chunk occupies a connection */
    bool ended;            /* the schedule is over */
    char violation[1024];
    char save_dir[256];
    struct counts sum;
    uint64_t events;
};

extern struct sim sim;

#define NETWORKS    2
#define ARCHIVE_DIR "/simulated-archive"

/* Where a fault of storage occurs. */
enum storage_place { AT_SAVE_DIR, AT_ARCHIVE, PLACES };

/* Traits of schedules. They use no random numbers of the schedule, so adding a trait does not change other schedules.
 */
enum trait {
    TRAIT_FREEZES,  /* trainers are frozen in the middle of a copy */
    TRAIT_SAME_RUN, /* a launch has the run id of the one before */
    TRAIT_SLOW,     /* bytes between agents are delayed */
    TRAIT_ISOLATES, /* a node is cut off from all others */
    TRAIT_SECOND,   /* the job is started a second time while it runs */
    TRAIT_DAMAGE,   /* copies are damaged in memory */
    TRAIT_DOUBTS,   /* storage is damaged, outdated or temporarily unreadable */
    TRAIT_DOMAINS,  /* machines are lost in pairs */
    TRAIT_KEEPS_FEW,
    TRAIT_BASE_GOES_BAD, /* a base is damaged before it is protected */
    TRAIT_SLOW_DRAINS,   /* drains are slow, and some are requested by users */
    TRAIT_OVERLOADED,    /* saves come faster than copies */
    TRAIT_RESHARDS,      /* launches have another number of ranks */
    TRAIT_MOVES,         /* launches run on other machines */
    TRAIT_CATALOG,
    TRAIT_LAST_STEP, /* the training ends with a step that must be saved to storage */
    TRAIT_ASKS_STEP, /* launches request a given step */
    TRAIT_SPREADS,   /* trainers pass shards on to each other */
    TRAIT_NAMESAKES, /* several machines have the same name */
    TRAIT_TWINS_DIFFER,
    TRAIT_LAST_DRAIN_FAILS, /* the first drains of the last step fail */
    TRAIT_LATE_REPORTS,     /* a node's report about its drain arrives late, while other nodes fail */
    TRAIT_TIMERS_FIRST,     /* an agent that was stopped runs due timers before it handles what has arrived */
    TRAIT_STANDS_STILL,     /* the coordinator's agent is stopped during a recovery */
    /* Numbers that leave most schedules in which planted faults are found as they were. */
    TRAIT_FULL = 58,         /* storage is full at times */
    TRAIT_POWER = 774,       /* storage loses what was not synced */
    TRAIT_CLOCK_JUMPS = 793, /* the clocks of machines jump */
    TRAIT_NETWORKS = 797,    /* machines have two networks, of which one fails at times */
    TRAIT_PRESSURE = 811,    /* machines are short of memory at times */
    TRAIT_BUCKET = 842,      /* storage is a bucket of S3, and what goes wrong there is bucket.c's */
    TRAIT_LONG_COPIES = 871, /* the copies of a version take longer than version_timeout_ms */
    TRAIT_ARCHIVE = 1317,    /* some versions are copied to an archive, which fails at times */
    TRAIT_TREE = 1731,       /* leaders relay messages, of more machines than otherwise */
    TRAIT_UNCHANGED = 3213   /* parts of the state do not change from one version to the next */
};
bool sim_trait(enum trait trait);

uint64_t sim_random(void);
uint64_t sim_between(uint64_t low, uint64_t high); /* inclusive */
bool sim_chance(uint32_t percent);
/* Runs fn(ctx) after delay_us as the host's agent, if it is still alive, or as the world (host NULL). */
void sim_after(uint64_t delay_us, struct host *host, sim_fn *fn, void *ctx);
/* Runs the next event. False: there is none, or the schedule is over. */
bool sim_step(void);
void sim_log(const char *fmt, ...) printf_like(1, 2);
/* Reports a violation of a guarantee and ends the schedule. Only the first one counts. */
void sim_violation(const char *fmt, ...) printf_like(1, 2);

/* ---- hosts.c: machines, the life cycle of their agents, what outlives them --------------------------------------- */

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
    char *settings;      /* the same, as its trainers send it */
    struct agent *agent; /* NULL: it is not running */
    struct loop *loop;
    struct link *link;
    uint32_t life;
    uint32_t heap_owner;             /* of its agent (heap.h) */
    jmp_buf death;                   /* target of _exit */
    uint32_t dies_in;                /* number of externally visible operations until it dies; 0: it does not */
    bool refused_by[PLACES];         /* storage refuses this host */
    uint64_t full_until_us[PLACES];  /* it finds no room on storage until then */
    uint64_t hangs_until_us[PLACES]; /* calls to storage return at this time */
    uint64_t clock_ahead_us;         /* how far its clock is ahead of the simulated time */
    int64_t wall_ahead_ms;           /* the same for its wall clock, which may also be behind */
    uint64_t stopped_until_us;       /* its agent does not run (SIGSTOP) */
    uint64_t short_until_us;         /* out of memory until then: some jobs cannot be submitted to a pool */
    enum memory_level squeezed;      /* how short of memory its machine is, */
    uint64_t squeezed_until_us;      /* until then */
    bool noisy;                      /* some chunks that it receives have wrong bytes */
    bool interrupts;                 /* a fault occurs while it sends its next chunk */
    bool isolates;                   /* it is isolated once it has sent its next READY */
    uint64_t isolated_until_us;      /* it has no connections until then */
    uint64_t cut_until_us[NETWORKS]; /* the same for one of its networks, */
    bool is_cut_silently;            /* where it then gets no answer at all */
    bool gone;                       /* the machine is down */
    bool ran;                        /* its agent's code has run since the last check */
    bool changed;                    /* the contents of its memory may have changed since the last check */
    pid_t pid;
    struct object *listener;
    struct parked *parked;
    struct object *sockets;           /* its agent's ends */
    uint64_t adopted;                 /* highest term that it is known to have adopted */
    struct version watermark;         /* newest commit that it is known to know of */
    uint64_t decided_in;              /* term of the decision that it learned this from */
    struct version knows;             /* newest commit since the machine was set up */
    struct version restored;          /* version that was restored since then */
    uint64_t lost_us;                 /* when its memory was lost last */
    uint64_t judged_term, judged_seq; /* the last decision of its coordinator that was checked */
    uint32_t followed;                /* number of anchors when its decision was last followed (judge.c) */
    struct counts counts;
};

void hosts_make(uint32_t count, const char *config_text);
void host_start(struct host *host);
/* Kills its agent; its supervisor starts another one after restart_us. */
void host_kill_agent(struct host *host, uint64_t restart_us);
/* Stops its agent for this time. */
void host_stop_agent(struct host *host, uint64_t for_us);
/* Makes its clock jump: whatever was due within that time is due now. */
void host_jump_clock(struct host *host, uint64_t by_us);
/* Kills its agent and its supervisor, which loses the kept descriptors; trainers survive. */
void host_forget(struct host *host, uint64_t restart_us);
/* Loses the machine with all its memory; another machine with the same name appears after return_us. */
void host_lose(struct host *host, uint64_t return_us);
/* The CPU time of this process. */
uint64_t processor_ns(void);
/* Logs the contents of its slots. */
void host_show_slots(const struct host *host);
/* The agent is about to perform an externally visible operation: it may die here. */
void host_does_something(void);
/* Calls fn(ctx) as the host's agent, followed by the loop's work after a callback. */
void host_run(struct host *host, sim_fn *fn, void *ctx);

/* ---- loop.c ----------------------------------------------------------------------------------------------------- */

void loop_after_callback(struct loop *loop);
bool loop_is_stopped(const struct loop *loop);
/* The clock of its host goes on by so much. */
void loop_clock_jumped(struct loop *loop, uint64_t by_us);
/* The object may have become readable. */
void object_wake(struct object *object);
/* Runs the pool jobs that the current agent waits for. */
void pools_work(struct host *host);

/* ---- objects.c: descriptors that the kernel does not know -------------------------------------------------------- */

enum object_kind { OBJECT_MEMORY, OBJECT_SOCKET, OBJECT_LISTENER, OBJECT_PROCESS, OBJECT_FILE, OBJECT_OTHER };

struct frame {
    struct frame *next;
    struct ipc_frame ipc; /* descriptors are numbers of the receiver */
    struct object *to;
};

struct object {
    enum object_kind kind;
    uint32_t refs; /* from descriptors, mappings and other owners */
    struct loop_fd *source;
    /* memory */
    uint8_t *base;
    uint64_t bytes;
    /* socket; a listener's connections wait in its queue */
    struct object *other;
    struct frame *first, **end;
    uint64_t arrives_us;
    bool hung_up;
    struct host *host; /* of the agent's end */
    struct object *next_socket;
    void (*got)(void *ctx, struct ipc_frame *frame); /* of the trainer's end; frame NULL: the connection was cut */
    void *ctx;
    /* process */
    pid_t pid;
    /* file or directory of storage */
    struct file *file;
    uint64_t position;
    uint32_t losses; /* of the file, as already reported to this descriptor */
    bool appends;
};

struct object *object_new(enum object_kind kind);
void object_ref(struct object *object);
void object_unref(struct object *object);
int object_fd(struct object *object); /* a new descriptor */
struct object *object_of(int fd);     /* NULL: it belongs to the kernel */
void fd_close(int fd);
/* Makes the descriptor refer to this object; takes over a reference. */
void object_replace(int fd, struct object *object);

/* ---- slot_uses.c ------------------------------------------------------------------------------------------------- */

/* Until slot_use_end(who), the slot with these bytes must not be given to another user. The use also ends with this
 * agent (NULL: with none). */
void slot_use_begin(const void *who, const void *at, const char *what, const struct host *agent);
void slot_use_end(const void *who);
/* slot_use_restore: a trainer restores from the slot. slot_use_damaged: the slot's bytes were damaged. */
void slot_use_restore(const void *who, const void *at);
void slot_use_damaged(const void *image);

/* The pages of the slot at this place are removed. */
void slot_use_removed(const uint8_t *at, uint64_t bytes);

/* ---- pressure.c -------------------------------------------------------------------------------------------------- */

void pressure_squeeze(struct host *host);
/* A rank of the launch got this error: its slots may have been given back, but not for long. */
void judge_memory_lacks(const struct launch *launch, const struct error *err);
/* True while a machine is short of memory, or slots that its agent gave back are not used again yet. */
bool pressure_lasts(void);
/* The same, or some copy that was given up may not be there again. */
bool pressure_leaves_marks(void);
/* This memory no longer exists. */
void pressure_forget(const uint8_t *at, uint64_t bytes);
bool pressure_has_pages(const uint8_t *at, uint64_t bytes);
/* The range has no pages from now on. */
void pressure_untouched(const uint8_t *at, uint64_t bytes);
/* The current agent writes the header of a slot. */
void pressure_header(const struct slot_header *before, const struct slot_header *now);

/* ---- files.c: storage -------------------------------------------------------------------------------------------- */

/* True, with errno set, if the current host is cut off from the place where this file is. */
bool storage_refuses(int fd);
/* Counts a call of the current host that asks storage for a name or a listing. */
void storage_looked_up(void);
int file_open(int dir_fd, const char *name, int flags);
void file_closed(struct file *file);
ssize_t file_write(int fd, const void *from, size_t len);
void file_stat(const struct file *file, struct stat *out);

/* ---- storage_doubts.c -------------------------------------------------------------------------------------------- */

struct entry;
/* True if opening this entry of the directory fails for the current host. */
bool doubts_hide(const struct file *dir, const struct entry *entry);
/* The entries that the current host sees in the directory; NULL, with errno set, on an error. */
const struct entry *doubts_list(const struct file *dir);
void doubts_claimed(const struct file *dir);
bool doubts_of_notes(void);
void doubts_plan(void);
/* Damages a published version, mostly the newest one. */
void doubts_tear(void);
/* Damages something on storage, or makes it unreadable until then. */
void doubts_strike(uint64_t until_us);

#define VERSION_MOST ((struct version){UINT64_MAX, UINT64_MAX})

struct published_version {
    struct version version;
    bool torn;
};
/* Finds the newest published version below at->version. False: there is none. */
bool published_next(struct published_version *at);

/* ---- power.c ----------------------------------------------------------------------------------------------------- */

/* Storage loses power at one of the next calls to it. */
void power_go_soon(void);

/* ---- catalog.c --------------------------------------------------------------------------------------------------- */

void catalog_lose(const struct host *host);
/* True if there are catalogs and none has been lost. */
bool catalog_is_complete(void);

/* ---- damage.c ---------------------------------------------------------------------------------------------------- */

void damage_plan(void);
/* Flips a bit of this verified slot. */
void damage_slot(struct host *host, struct segment *segment, uint32_t k);
/* damage_is_known: the host's copy was damaged once; it may have been fetched again since. */
/* This version was restored: damages copies of it that are the only ones, before others exist. */
void damage_base(const struct shape *shape, struct version base);
void damage_only_copies(const struct shape *shape, struct version version);
/* Damages the image that a host is sending, if it is an image. */
void damage_sent(struct host *host, const void *image);
/* Damages one of the copies of the last commit when nothing is saved any more. False: none was damaged. */
bool damage_at_rest(const struct shape *shape, struct version version);
bool damage_is_known(const struct host *host, struct hash128 shard, struct version version);
uint32_t damage_count(struct version version);

/* ---- bases.c ----------------------------------------------------------------------------------------------------- */

void bases_plan(void);
/* True if the job must not end yet. */
bool bases_wait(const struct launch *launch);
/* Another rank has sealed this step. */
void bases_sealed(struct launch *launch, uint64_t step);
/* The launch's trainers have restored. */
void bases_restored(struct launch *launch);
/* How long a chunk is delayed for these schedules. */
uint64_t bases_slowness_us(void);

/* ---- ipc.c ------------------------------------------------------------------------------------------------------ */

/* A trainer connects; NULL: no agent listens. */
struct object *ipc_join(struct host *host, pid_t pid, void (*got)(void *ctx, struct ipc_frame *frame), void *ctx);
void ipc_hang_up(struct object *socket);

/* ---- processes.c ------------------------------------------------------------------------------------------------ */

pid_t process_begin(void (*killed)(void *ctx), void *ctx);
void process_end(pid_t pid);

/* ---- link.c ----------------------------------------------------------------------------------------------------- */

/* Ends the link of a host whose agent has died. */
void link_lost(struct link *link);
/* Cuts the connections between two agents. */
void link_cut(struct host *a, struct host *b);
/* The ends of its connections, as many as UCX would have endpoints. */
uint32_t link_endpoints(const struct host *host);
/* Delays everything between them for this time. */
void link_stall(struct host *a, struct host *b, uint64_t for_us);

/* Cuts all connections of a host, and prevents new ones for this time. */
void link_isolate(struct host *host, uint64_t for_us);
/* The same for one of its two networks, with errors or silently. */
void link_network_fails(struct host *host, uint64_t for_us);

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
    uint64_t freezes_us;              /* how long it freezes in the middle of its next copy */
    uint64_t asked_step, sealed_step; /* newest step that was begun, and that was sealed */
    bool was_cut;                     /* the agent that it has reconnected to may not know of those steps */
    uint64_t committed, published, failed;
    struct version version; /* restored */
    bool fresh, resharded;
    bool lacks[2]; /* its node lacks this shard, and a twin passes it on */
    char passed_over[PASSED_TEXT_BYTES];
};

/* The sharding of the state, and the machines: they may differ between launches. */
struct shape {
    uint32_t number; /* of the sharding */
    uint32_t ranks_per_host, ranks, twins;
    uint32_t first_host, hosts; /* consecutive, wrapping around after the last host */
};

struct launch {
    const struct shape *shape;
    uint32_t number;
    enum phase phase;
    uint64_t phase_us;   /* when the phase began */
    uint64_t claimed_us; /* when it began to claim its term */
    struct rank *ranks;
    uint32_t count, arrived;
    uint64_t term;
    struct world world;
    uint64_t step, steps;        /* steps done, and to do */
    uint64_t last_step, last_us; /* last step being saved to storage, and since when; 0: not yet */
    bool rests;                  /* it no longer saves */
    uint32_t last_aborts;        /* aborts of last steps after the last fault */
    struct {                     /* commits under overload, after the last fault (overload.c) */
        uint64_t since_us, newest;
        uint32_t commits;
    } calm;
    bool dead;
    char run_id[32];
    bool takes_over; /* takeover is configured */
    uint64_t began_us;
    uint64_t asked_step; /* step that it requests, or TCK_NEWEST */
    bool spreads;        /* its ranks pass shards on to each other */
    bool noted;          /* when it claimed its term, storage had a note of a commit */
    bool forged;         /* its ranks send a world in which two machines have the same name */
    struct launch *next; /* older */
};

/* The job. */
struct job {
    struct shape shapes[2], newest; /* possible shapes; the shape of the newest launch */
    uint32_t shards;                /* of a rank: 1 or 2 */
    uint32_t image_bytes;
    uint64_t step_us, steps;
    uint64_t stagger_us; /* ranks reach a phase within this time */
    uint32_t save_every, store_every;
    uint32_t copies;
    uint32_t kept;                        /* published versions that retention keeps */
    uint32_t archive_every, archive_kept; /* steps; versions */
    struct launch *launch;
    struct launch *second;         /* second launch, started during this one, that has no term yet */
    uint64_t committed, published; /* newest steps of this launch as reported to its trainers */
    uint32_t launches, restores, commits, publishes, archived;
    bool back;       /* the next launch has the layout of the saved versions */
    bool done, lost; /* lost: the saved versions are lost, and the loss was reported */
};
extern struct job job;

void launch_begin(void *unused);
/* All trainers are killed; the next launch begins after again_us. */
void launch_fail(struct launch *launch, uint64_t again_us, const char *why);
void launch_arrived(struct rank *rank);
/* A rank has claimed a term. */
void launch_claimed(struct rank *rank, uint64_t term);
/* The job is started a second time, by another launcher. */
void launch_second(void);
/* A rank's agent has refused. */
void launch_refused(struct rank *rank, const struct error *err);
/* The next launch uses the other sharding, which is that of the saved versions. */
void launch_reshape(const struct launch *launch);
void launch_host_lost(struct host *host);
/* True if the launch no longer saves. */
bool launch_rests(const struct launch *launch);
/* True if the launch that has this term requested a given step. */
bool launch_asked_step_in(uint64_t term);
/* The machines of the launch with this term that were not lost since it began, as a bit each. */
uint64_t launch_hosts_in(uint64_t term);

void rank_next(struct rank *rank);
/* Claims another term although it has one. False: it cannot now. */
bool rank_claim_again(struct rank *rank);
/* Kills the rank. If it is frozen in the middle of a copy, it may continue the copy later and end after that. */
void rank_kill(struct rank *rank);
/* Ends the rank at once. */
void rank_end(struct rank *rank);
/* The ranks could not pass missing shards on to each other. */
void rank_restore_again(struct rank *rank);
/* All ranks have their restored bytes. */
void rank_restored(struct rank *rank);
void rank_save(struct rank *rank, uint64_t step, bool to_storage, bool last);
void rank_shard_ids(const struct shape *shape, uint32_t rank, struct shard_info out[2]);
/* One bit per host. */
uint64_t shape_hosts(const struct shape *shape);
/* The contents of a shard's image at a version. */
void image_fill(uint8_t *image, uint64_t bytes, struct hash128 shard, struct version version);
bool image_is(const uint8_t *image, uint64_t bytes, struct hash128 shard, struct version version);

/* ---- overload.c -------------------------------------------------------------------------------------------------- */

/* True while the launch has to save more than can be copied. */
bool overload_lasts(const struct launch *launch);
/* Checks, once in each step, that enough is committed. */
void overload_count(struct launch *launch);
void overload_save(struct rank *rank, uint64_t step, bool to_storage);
/* How long a chunk occupies its connection. */
uint64_t overload_chunk_us(void);

/* ---- judge.c ----------------------------------------------------------------------------------------------------- */

void judge_event(void); /* after every event */
/* Slots of the shard, or their bytes, may have changed; shard NULL: those of any shard. */
void judge_memory_changed(struct host *host, const struct hash128 *shard);
/* These bytes have changed; some of them may be in a slot of the host. */
void judge_bytes_changed(struct host *host, const void *at, size_t len);
/* This host's agent sends these bytes to another one. */
void judge_passed_on(const struct host *host, const void *at, size_t len);
void judge_gone_back(struct version base);
void judge_restored(struct launch *launch);
/* All ranks got the error that nothing can be restored. */
void judge_unrecoverable(const struct launch *launch, const struct error *err);
/* Nothing was saved for a while, and there were no faults. */
void judge_settled(const struct launch *launch);
void judge_sealed(const struct rank *rank, uint64_t step);
void judge_host_lost(struct host *host);
/* Calls to storage may have been given up too early. */
void judge_clock_jumped(void);
/* The host has given up this copy because it is short of memory. */
void judge_given_up(const struct host *host, struct hash128 shard, struct version version);
void judge_damaged(const struct host *host, struct hash128 shard, struct version version);
/* save_dir no longer has a note of a commit. */
void judge_note_emptied(void);
/* A published version was damaged. */
void judge_torn(struct version version);
/* A published version is gone after all, because it was not synced. */
void judge_unpublished(struct version version);
/* A drain of the version that this decision commits was requested. */
void judge_drain_asked(const struct decision *d);
/* A directory or file is renamed into the job's directory, under this name. */
void judge_renamed_in(const char *name);
/* This name is removed from the job's directory. */
void judge_removed(const char *name);
/* Checks everything, for a world too large to be checked after every event. */
void judge_all(void);
/* Checks that what is published was sealed by all ranks. */
void judge_published(struct version version);

/* True if the agent counts a copy in its memory and the bytes are right. */
bool judge_has_copy(const struct host *host, const struct shard_info *shard, struct version version);

/* ---- judge_bases.c ----------------------------------------------------------------------------------------------- */

/* Checks the coordinator's decision about its term's base. */
void judge_base(const struct decision *d);
/* True if some term has chosen the version as its base. */
bool judge_is_base(struct version version);
/* Checks that no newer term has gone on without the version, which is committed now. */
void judge_commit(struct version version);

/* ---- judge_decisions.c ------------------------------------------------------------------------------------------- */

/* Checks the decision of the coordinator on this host, if there is one. */
void judge_decision(struct host *host);
/* The same for all hosts, where it is not done after every event because the world is too large. */
void judge_decisions(void);
bool judge_is_over(struct version version);
bool judge_is_committed(struct version version); /* and nothing newer is committed */
bool judge_was_committed(struct version version);
/* It was reported to trainers as failed, so it must never be committed. */
void judge_reported_failed(struct version version);

/* ---- judge_saves.c ----------------------------------------------------------------------------------------------- */

/* Checks the rank's status page. */
void judge_status(struct rank *rank);
/* A slot's header changes. */
void judge_header(const struct slot_header *before, const struct slot_header *now);
/* A slot is granted for another agent's copy of this version. */
void judge_copy_taken(const struct agent *agent, struct version version);
/* A rank was refused a slot for the training's last step. */
void judge_last_refused(const struct rank *rank, const struct error *err);

/* ---- judge_storage.c --------------------------------------------------------------------------------------------- */

/* The newest version that is guaranteed to be on storage. */
struct version stored_promise(void);
void stored_reported(struct version version);
void stored_restored(uint64_t term, struct version version);
/* True if storage has, or may have, a note that a term before this one has committed. */
bool stored_notes(uint64_t term);
/* All ranks read this version from storage, in a layout other than its own. */
void stored_resharded(struct launch *launch, struct version version);
/* Text that names the newest damaged version newer than this one; NULL if there is none. */
const char *stored_passed_over(struct version version);
void judge_end(void);

/* True if one of the versions that `next` lists supersedes it. */
bool is_superseded(struct version version, bool (*next)(struct published_version *at), uint32_t kept);
/* True if the version is in the line of history that ends at head. */
bool is_ancestor(struct version version, struct version head);

/* ---- judge_archive.c --------------------------------------------------------------------------------------------- */

/* A version is published in save_dir. */
void archive_saved(struct version version);
/* As published_next, of what is in the archive. */
bool archived_next(struct published_version *at);
bool is_archived(struct version version);
/* This version was restored: newer ones were given up. */
void archive_restored(struct version version);
/* The newest version that is guaranteed to be in the archive since then; VERSION_NONE: none. */
struct version archive_promise(uint64_t since_us);
/* The directory is renamed into the job's directory in the archive, under this name. */
void judge_archived(const char *name, const struct file *dir);
/* This name is removed from the job's directory in the archive. */
void judge_unarchived(const char *name);
void judge_archive_end(void);

/* ---- scale.c, main.c --------------------------------------------------------------------------------------------- */

/* Runs one version of a large job and prints the cost of each phase, as a table or as one JSON object per line. */
void scale_run(uint32_t hosts, uint32_t ranks_per_host, bool json);
/* All ranks have reached the end of their launch's phase. */
void scale_phase_over(const struct launch *launch);
/* All ranks have begun the training. */
void scale_train(struct launch *launch);
/* Creates the job's hosts; hasty: with short time-outs. */
void make_hosts(uint32_t hosts, uint32_t slots, bool hasty);

/* ---- faults.c ---------------------------------------------------------------------------------------------------- */

struct faults {
    bool any;
    uint64_t until_us; /* no faults after this */
    uint64_t last_us;  /* when the last fault ended */
    uint32_t count;
};
extern struct faults faults;
void faults_plan(void);
/* Chooses how long a fault lasts, in microseconds, and registers its end. */
uint64_t faults_lasting(uint64_t low_ms, uint64_t high_ms);
/* A host with `interrupts` sends a chunk: returns how long it is delayed. */
uint64_t faults_interrupt(struct host *from, struct host *to, const void *chunk);
/* The training's last step is about to be saved; this host's agent decides on it. */
void faults_strike_last(struct host *coordinator);
/* This host's agent forms a term and requests the others' inventories. */
void faults_strike_recovery(struct host *coordinator);
/* A version was copied to the archive. */
void faults_archived(void);
/* Registers that a fault ends at this time. */
void faults_last(uint64_t us);

#endif
