/* SPDX-License-Identifier: Apache-2.0
 * An agent for tests of the client: a thread that answers the messages of one node's ranks with a memory tier of its
 * own, and misbehaves when told to. It stops and starts again with its memory kept, as the real one does. */
#ifndef TCK_TESTS_FAKE_AGENT_H
#define TCK_TESTS_FAKE_AGENT_H

#include "base/message.h"
#include "base/seal.h"
#include <pthread.h>
#include <stdatomic.h>

#define FAKE_SHARDS_MAX 64
#define FAKE_CLIENTS    4
#define FAKE_SLOTS      3

enum fake_mode {
    FAKE_GRANTS,
    FAKE_REFUSES,       /* BEGIN is answered with MSG_REFUSED */
    FAKE_HANGS,         /* nothing is answered, the beat stands still */
    FAKE_HOLDS,         /* BEGIN is answered late: when the mode changes */
    FAKE_DIES_ASKED,    /* hangs up at BEGIN, and answers on the next connection */
    FAKE_DIES_GRANTING, /* the same, once it has answered it */
    FAKE_NONSENSE,      /* BEGIN and RESTORE are answered with slots that do not exist */
};

struct fake_shard {
    struct hash128 id;
    uint64_t bytes;
    uint32_t next_slot, sealed_slot, granted_slot;
    uint64_t granted_step;
    struct hash128 early; /* of the newest ROOTS */
    int fd, seals_fd;
    uint8_t *base;
    struct seal *seals; /* as the client leaves them */
};

struct fake_client {
    int fd; /* -1: none */
    int board_fd;
    struct shared_status *shared;
    uint32_t rank;
    struct hash128 shards[FAKE_SHARDS_MAX]; /* of this rank, sorted */
    bool stored[FAKE_SHARDS_MAX];
    uint32_t shard_count;
    struct ipc_held {
        uint32_t seq;
        uint64_t step;
        bool waiting;
    } held;
};

struct fake_agent {
    char dir[256];
    struct rank_hello hello;
    pthread_t thread;
    bool running;
    int listen_fd, stop_fd;
    atomic_int mode;    /* enum fake_mode */
    atomic_bool aborts; /* what is sealed */
    bool gave_back;     /* the last slot of each shard to come has lost its pages because memory is short */
    atomic_bool hasty;  /* says that a version is committed as soon as it is asked for */
    atomic_int no_room; /* so many BEGINs of a last step are put off */
    atomic_int rots;    /* so many RESTOREs are answered with another root than that of the CRCs */
    atomic_int flips;   /* so many RESTOREs are answered, and then a bit of the image is flipped, which is undone when
                           the next one comes, of the first shard at */
    _Atomic uint64_t flip_at;
    uint8_t *flipped; /* where one is; NULL: nowhere */
    atomic_int begins, seals, abandons, returns, detaches, restores_done;
    _Atomic uint64_t abandoned_step; /* of the newest ABANDON */
    _Atomic uint64_t roots_step;     /* of the newest ROOTS, */
    int roots_seals;                 /* and how many SEALs had come before it */
    _Atomic uint64_t interval;       /* put on the shared status pages, */
    _Atomic uint64_t storage_interval;
    struct fake_client clients[FAKE_CLIENTS];
    /* the memory tier: outlives stop and start */
    struct fake_shard shards[FAKE_SHARDS_MAX];
    uint32_t shard_count;
    struct version sealed;            /* {0, 0}: none */
    uint64_t sealed_by[FAKE_CLIENTS]; /* the newest step of each rank */
    uint64_t term;
};

/* Serves <runtime_dir>/<job>/<node>. The struct must be zero before the first start. */
void fake_agent_start(struct fake_agent *agent, const char *runtime_dir, const char *job, const char *node);
/* As if it died: all connections close, the memory stays. */
void fake_agent_stop(struct fake_agent *agent);
/* Gives the memory back too. */
void fake_agent_free(struct fake_agent *agent);

/* The sealed image of a shard. */
uint8_t *fake_agent_image(struct fake_agent *agent, uint32_t shard);

#endif
