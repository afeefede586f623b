/* SPDX-License-Identifier: Apache-2.0
 * See objects_rig.h. */
#include "objects_rig.h"

#include "tiers/manifest.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

struct object_store *objects_store;
struct config objects_config;
struct loop *objects_loop;
struct error objects_err;
struct tier_pace objects_pace;
static struct pool *pool;

void objects_begin(void)
{
    char here[128];
    objects_store = memory_store_new();
    objects_err = (struct error){0};
    objects_config = (struct config){.job = OBJECTS_JOB, .node = "n0", .max_ckpt_num = 2};
    cr_assert_not_null(getcwd(here, sizeof(here)));
    snprintf(objects_config.save_dir, sizeof(objects_config.save_dir), "s3://memory");
    snprintf(objects_config.audit_file_path, sizeof(objects_config.audit_file_path), "%s/objects.%d.jsonl", here,
             (int)getpid());
    cr_assert_eq(loop_new(&objects_loop, &objects_err), TCK_OK, "%s", objects_err.text);
    cr_assert_eq(pool_new(objects_loop, 1, &pool, &objects_err), TCK_OK, "%s", objects_err.text);
}

void objects_end(void)
{
    pool_free(pool);
    loop_free(objects_loop);
    objects_store->ops->free(objects_store);
    unlink(objects_config.audit_file_path);
}

struct persistent *objects_tier(bool with_loop)
{
    struct persistent *tier = NULL;
    const struct persistent_setup setup = {.loop = with_loop ? objects_loop : NULL,
                                           .pool = with_loop ? pool : NULL,
                                           .config = &objects_config,
                                           .pace = objects_pace,
                                           .save_store = memory_store_client(objects_store)};
    cr_assert_eq(persistent_new(&setup, &tier, &objects_err), TCK_OK, "%s", objects_err.text);
    return tier;
}

void objects_ended(void *ctx, const struct error *outcome)
{
    *(struct error *)ctx = *outcome;
    loop_stop(objects_loop);
}

struct error objects_wait(tck_status_t begun)
{
    if (begun == TCK_OK) {
        loop_run(objects_loop);
    }
    return objects_err;
}

static void nothing(void *ctx)
{
    (void)ctx;
}

static void turn(void *ctx, bool canceled)
{
    (void)ctx;
    (void)canceled;
    loop_stop(objects_loop);
}

void objects_settle(void)
{
    cr_assert_eq(pool_submit(pool, nothing, turn, NULL), TCK_OK);
    loop_run(objects_loop);
}

const char *objects_key(struct version version, const char *name)
{
    static char keys[4][OBJECT_KEY_MAX];
    static unsigned next;
    char *out = keys[next++ % 4];
    snprintf(out, OBJECT_KEY_MAX, OBJECTS_JOB "/v%012" PRIu64 ".t%" PRIu64 "/%s", version.step, version.term, name);
    return out;
}

const char *objects_shard_key(struct version version, uint32_t number)
{
    char name[MANIFEST_FILE_NAME];
    manifest_file_name((struct hash128){9, number}, name);
    return objects_key(version, name);
}
