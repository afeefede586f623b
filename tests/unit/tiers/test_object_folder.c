/* SPDX-License-Identifier: Apache-2.0
 * Folders in a store of objects: names, sizes, and what is not there. */
#include "tiers/object/object_folder.h"

#include "memory_store.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct object_store *store;
static struct object_folder *job;
static struct error err;

static void begin(void)
{
    store = memory_store_new();
    const struct object_root root = {.store = store};
    err = (struct error){0};
    cr_assert_eq(object_folder_new(&root, "job", &job, &err), TCK_OK, "%s", err.text);
}

static void end(void)
{
    object_folder_unref(job);
}

static void put(const char *key)
{
    memory_store_set(store, key, key, strlen(key));
}

TestSuite(object_folder, .init = begin, .fini = end);

Test(object_folder, lists_its_files_and_subfolders_and_nobody_elses)
{
    struct names names;
    put("job/");
    put("job/b");
    put("job/v/x");
    put("job/v/y");
    put("job2/c");
    put("other");
    cr_assert_eq(object_folder_list(job, "", &names, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(names.count, 2);
    cr_assert_str_eq(names.names[0], "b");
    cr_assert_str_eq(names.names[1], "v");
    names_free(&names);
    cr_assert_eq(object_folder_list(job, "b", &names, &err), TCK_OK);
    cr_assert_eq(names.count, 1);
    names_free(&names);
}

Test(object_folder, a_bucket_that_is_missing_is_not_an_empty_one)
{
    struct names names;
    const struct memory_failure gone = {.ops = MEMORY_LIST, .key = "", .fault = MEMORY_GONE, .count = 1};
    memory_store_fail(store, &gone);
    cr_assert_eq(object_folder_list(job, "", &names, &err), TCK_ERR_IO);
    cr_assert_eq(object_folder_list(job, "", &names, &err), TCK_OK);
    names_free(&names);
}

Test(object_folder, sizes_come_from_one_listing_once_it_is_gathered)
{
    struct object_folder *v = NULL;
    uint64_t bytes = 0;
    put("job/v/x");
    cr_assert_eq(object_folder_open(job, "v", &v, &err), TCK_OK);
    cr_assert_eq(object_folder_size(v, "x", &bytes, &err), TCK_OK);
    cr_assert_eq(bytes, strlen("job/v/x"));
    cr_assert_eq(memory_store_calls(store, MEMORY_HEAD), 1);
    cr_assert_eq(object_folder_gather(v, &err), TCK_OK);
    cr_assert_eq(object_folder_size(v, "x", &bytes, &err), TCK_OK);
    cr_assert_eq(object_folder_size(v, "z", &bytes, &err), TCK_ERR_NOENT);
    cr_assert_eq(memory_store_calls(store, MEMORY_HEAD), 1);
    object_folder_unref(v);
}

static const struct object_ops *memory;
static uint32_t list_quiet_ms, read_quiet_ms;

/* NOLINTNEXTLINE(readability-function-size): as object_store.h says */
static tck_status_t note_list(struct object_store *s, const struct object_call *call, const char *prefix, bool folders,
                              struct object_listing *out, struct error *e)
{
    list_quiet_ms = call->quiet_ms;
    return memory->list(s, call, prefix, folders, out, e);
}

/* NOLINTNEXTLINE(readability-function-size): as object_store.h says */
static tck_status_t note_read(struct object_store *s, const struct object_call *call, const char *key, uint64_t offset,
                              void *buffer, uint64_t bytes, struct error *e)
{
    read_quiet_ms = call->quiet_ms;
    return memory->get_range(s, call, key, offset, buffer, bytes, e);
}

Test(object_folder, reading_a_file_has_a_limit_of_its_own)
{
    struct object_store *noting = memory_store_new();
    const struct object_root root = {.store = noting, .quiet_ms = 1000, .read_quiet_ms = 3000};
    struct object_folder *folder = NULL;
    struct names names;
    char byte;
    memory = noting->ops;
    struct object_ops ops = *memory;
    ops.list = note_list;
    ops.get_range = note_read;
    noting->ops = &ops;
    memory_store_set(noting, "job/a", "a", 1);
    cr_assert_eq(object_folder_new(&root, "job", &folder, &err), TCK_OK);
    cr_assert_eq(object_folder_list(folder, "", &names, &err), TCK_OK, "%s", err.text);
    names_free(&names);
    cr_assert_eq(object_folder_read_at(folder, "a", 0, &byte, 1, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(list_quiet_ms, 1000);
    cr_assert_eq(read_quiet_ms, 3000);
    object_folder_unref(folder);
}

Test(object_folder, names_are_one_component)
{
    char *text;
    size_t len;
    cr_assert_eq(object_folder_read(job, "../x", 10, &text, &len, &err), TCK_ERR_DENIED);
    cr_assert_eq(object_folder_read(job, "a/b", 10, &text, &len, &err), TCK_ERR_DENIED);
    cr_assert_eq(object_folder_read(job, "", 10, &text, &len, &err), TCK_ERR_DENIED);
    cr_assert_eq(memory_store_calls(store, MEMORY_GET), 0);
}

Test(object_folder, only_one_of_two_creations_succeeds)
{
    char *text = NULL;
    size_t len = 0;
    cr_assert_eq(object_folder_create(job, "x", "one", 3, &err), TCK_OK);
    cr_assert_eq(object_folder_create(job, "x", "two", 3, &err), TCK_ERR_EXIST);
    cr_assert_eq(object_folder_create(job, "x", "one", 3, &err), TCK_OK);
    cr_assert_eq(object_folder_read(job, "x", 10, &text, &len, &err), TCK_OK);
    cr_assert_str_eq(text, "one");
    free(text);
}

Test(object_folder, what_was_sent_late_arrives_later)
{
    const struct memory_failure late = {.ops = MEMORY_PUT, .key = "x", .fault = MEMORY_LATE, .count = 1};
    memory_store_fail(store, &late);
    cr_assert_eq(object_folder_write(job, "x", "one", 3, &err), TCK_ERR_TIMEDOUT);
    cr_assert_not(memory_store_has(store, "job/x"));
    memory_store_deliver(store);
    cr_assert(memory_store_has(store, "job/x"));
}

Test(object_folder, names_that_lead_elsewhere_are_refused)
{
    static const char *const names[] = {"", ".", "..", "a/b", "a b", "\xc3\xa9"};
    char key[OBJECT_KEY_MAX];
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        cr_assert_eq(object_folder_key(job, names[i], key, &err), TCK_ERR_DENIED, "%s", names[i]);
    }
    cr_assert_eq(object_folder_key(job, ".a-_9", key, &err), TCK_OK);
    cr_assert_str_eq(key, "job/.a-_9");
}
