/* SPDX-License-Identifier: Apache-2.0
 * The keys of an object store below one prefix, as names in a folder. Whatever is below the next '/' is a subfolder,
 * and exists while a key begins with its name. Any thread; blocking. Statuses as in object_store.h. */
#ifndef TCK_TIERS_OBJECT_FOLDER_H
#define TCK_TIERS_OBJECT_FOLDER_H

#include "tiers/object/object_store.h"
#include "tiers/safe_fs.h"

struct object_folder;

/* What must be known about a whole store. */
struct object_root {
    struct object_store *store; /* freed with the last folder in it */
    /* Called by the calling thread whenever a call has made progress; may be NULL. */
    void (*moved)(void *ctx);
    void *moved_ctx;
    uint32_t quiet_ms;      /* of each call (object_store.h), except: */
    uint32_t read_quiet_ms; /* of reading a part of a file, which is done once it is known what is there */
};

/* The folder `below` the store's own prefix ("": that prefix itself). Takes over the store, also if it fails. */
must_check tck_status_t object_folder_new(const struct object_root *root, const char *below, struct object_folder **out,
                                          struct error *err);
/* Looks nothing up: the subfolder may be empty. */
must_check tck_status_t object_folder_open(struct object_folder *folder, const char *name, struct object_folder **out,
                                           struct error *err);
struct object_folder *object_folder_ref(struct object_folder *folder);
void object_folder_unref(struct object_folder *folder);

struct object_store *object_folder_store(const struct object_folder *folder);
/* How its calls are made; valid as long as the folder. */
const struct object_call *object_folder_call(const struct object_folder *folder);
/* The key of a name in it, for calls of the store. */
must_check tck_status_t object_folder_key(const struct object_folder *folder, const char *name,
                                          char out[OBJECT_KEY_MAX], struct error *err);

/* The names that begin so, sorted. A bucket that does not exist is TCK_ERR_IO: nothing is known of what it had. */
must_check tck_status_t object_folder_list(struct object_folder *folder, const char *beginning, struct names *out,
                                           struct error *err);
/* Lists the folder once, and answers later questions for sizes from this listing. */
must_check tck_status_t object_folder_gather(struct object_folder *folder, struct error *err);
must_check tck_status_t object_folder_size(struct object_folder *folder, const char *name, uint64_t *bytes_out,
                                           struct error *err);
must_check tck_status_t object_folder_read(struct object_folder *folder, const char *name, size_t max, char **text_out,
                                           size_t *len_out, struct error *err);
must_check tck_status_t object_folder_write(struct object_folder *folder, const char *name, const void *data,
                                            size_t len, struct error *err);
/* TCK_ERR_EXIST: it exists with another content. */
must_check tck_status_t object_folder_create(struct object_folder *folder, const char *name, const void *data,
                                             size_t len, struct error *err);
must_check tck_status_t object_folder_remove(struct object_folder *folder, const char *name, struct error *err);
must_check tck_status_t object_folder_read_at(struct object_folder *folder, const char *name, uint64_t offset,
                                              void *buffer, uint64_t bytes, struct error *err);

#endif
