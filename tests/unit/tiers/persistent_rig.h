/* SPDX-License-Identifier: Apache-2.0
 * The persistent tier in processes of their own, for programs that damage its files or end it anywhere: the stored
 * bytes follow from version and shard, so that any process can check whether it got the right ones. */
#ifndef TCK_TESTS_PERSISTENT_RIG_H
#define TCK_TESTS_PERSISTENT_RIG_H

#include "tiers/persistent.h"

#define RIG_JOB       "job"
#define RIG_KEEP      2
#define RIG_SHARDS    2
#define RIG_BIG_STEP  30 /* the first file of this version has more than one chunk */
#define RIG_BIG_BYTES (CHUNK_BYTES + 4096u)

enum { RIG_DONE = 0, RIG_WRONG = 3 }; /* exit status of a child */

extern char rig_root[256];
extern struct config rig_config;
extern struct persistent *rig_tier;

/* Names the root directory, <name>.<pid>; save_dir is "save" in it. */
void rig_begin(const char *name);
const char *rig_path(const char *below);
/* Removes everything below the root. */
void rig_clear(void);
/* Ends this process with RIG_WRONG. */
void rig_die(const char *what, const char *why) __attribute__((noreturn));
/* Runs fn in a child. Its exit status, or -1 if it was killed. */
int rig_in_child(void (*fn)(void *ctx), void *ctx);

/* Loop and pool of this process; rig_tier is opened by rig_open and freed by rig_stop. */
void rig_start(void);
void rig_stop(void);
tck_status_t rig_open(struct error *err);

struct tier_item rig_item(struct version version, uint32_t number);
void rig_item_free(struct tier_item *item);
/* Puts and publishes a version, and waits until what is too old is removed. */
struct error rig_drain(struct version version);
/* Loads one file; ends this process if it succeeds with wrong bytes. */
struct error rig_get(const struct published *which, const struct manifest_file *file);

#endif
