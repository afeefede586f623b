/* SPDX-License-Identifier: Apache-2.0
 * See object_folder.h. */
#include "tiers/object/object_folder.h"

#include "base/digest.h"
#include "base/path.h"
#include "base/progress.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shared by all folders of a store. */
struct root {
    atomic_uint refs;
    struct object_root of;
    struct object_call call, read;
};

struct object_folder {
    atomic_uint refs;
    struct root *root;
    char prefix[OBJECT_KEY_MAX]; /* of its keys: "" or ends in '/' */
    pthread_mutex_t lock;        /* guards what follows */
    bool gathered;
    struct object_listing listing;
};

/* ---- life ------------------------------------------------------------------------------------------------------ */

static void moved(void *ctx, uint64_t bytes)
{
    const struct root *root = ctx;
    (void)bytes;
    progress_moved();
    if (root->of.moved != NULL) {
        root->of.moved(root->of.moved_ctx);
    }
}

static void root_unref(struct root *root)
{
    if (atomic_fetch_sub(&root->refs, 1) == 1) {
        root->of.store->ops->free(root->of.store);
        free(root);
    }
}

/* Takes over the root's reference, also if it fails. */
static tck_status_t folder_make(struct root *root, const char *prefix, struct object_folder **out, struct error *err)
{
    struct object_folder *folder = calloc(1, sizeof(*folder));
    if (folder == NULL) {
        root_unref(root);
        return error_set(err, TCK_ERR_NOMEM, "no memory for a folder of %s", prefix);
    }
    atomic_store(&folder->refs, 1);
    folder->root = root;
    snprintf(folder->prefix, sizeof(folder->prefix), "%s", prefix);
    pthread_mutex_init(&folder->lock, NULL);
    *out = folder;
    return TCK_OK;
}

tck_status_t object_folder_new(const struct object_root *of, const char *below, struct object_folder **out,
                               struct error *err)
{
    char prefix[OBJECT_KEY_MAX];
    struct root *root = calloc(1, sizeof(*root));
    if (root == NULL) {
        of->store->ops->free(of->store);
        return error_set(err, TCK_ERR_NOMEM, "no memory for a store");
    }
    atomic_store(&root->refs, 1);
    root->of = *of;
    root->call = (struct object_call){.quiet_ms = of->quiet_ms, .moved = moved, .moved_ctx = root};
    root->read = (struct object_call){.quiet_ms = of->read_quiet_ms, .moved = moved, .moved_ctx = root};
    int len = snprintf(prefix, sizeof(prefix), "%s%s", below, below[0] == '\0' ? "" : "/");
    if (len < 0 || (size_t)len >= sizeof(prefix)) {
        root_unref(root);
        return error_set(err, TCK_ERR_INVAL, "%s: the key is too long", below);
    }
    return folder_make(root, prefix, out, err);
}

struct object_folder *object_folder_ref(struct object_folder *folder)
{
    atomic_fetch_add(&folder->refs, 1);
    return folder;
}

void object_folder_unref(struct object_folder *folder)
{
    if (folder != NULL && atomic_fetch_sub(&folder->refs, 1) == 1) {
        object_listing_free(&folder->listing);
        pthread_mutex_destroy(&folder->lock);
        root_unref(folder->root);
        free(folder);
    }
}

struct object_store *object_folder_store(const struct object_folder *folder)
{
    return folder->root->of.store;
}

const struct object_call *object_folder_call(const struct object_folder *folder)
{
    return &folder->root->call;
}

tck_status_t object_folder_key(const struct object_folder *folder, const char *name, char out[OBJECT_KEY_MAX],
                               struct error *err)
{
    if (!path_is_key(name, strlen(name)) || strchr(name, '/') != NULL) {
        return error_set(err, TCK_ERR_DENIED, "\"%s\" is not a name in a store of objects", name);
    }
    int len = snprintf(out, OBJECT_KEY_MAX, "%s%s", folder->prefix, name);
    return len >= 0 && len < OBJECT_KEY_MAX ? TCK_OK : error_set(err, TCK_ERR_INVAL, "%s: the key is too long", name);
}

tck_status_t object_folder_open(struct object_folder *folder, const char *name, struct object_folder **out,
                                struct error *err)
{
    char key[OBJECT_KEY_MAX], prefix[OBJECT_KEY_MAX];
    tck_status_t status = object_folder_key(folder, name, key, err);
    if (status != TCK_OK) {
        return status;
    }
    int len = snprintf(prefix, sizeof(prefix), "%s/", key);
    if (len < 0 || (size_t)len >= sizeof(prefix)) {
        return error_set(err, TCK_ERR_INVAL, "%s: the key is too long", key);
    }
    atomic_fetch_add(&folder->root->refs, 1);
    return folder_make(folder->root, prefix, out, err);
}

/* ---- names ----------------------------------------------------------------------------------------------------- */

/* Lists of what does not exist are empty, so there is no such bucket: a caller that reads TCK_ERR_NOENT as "nothing was
 * saved" would be wrong. */
static tck_status_t list_keys(const struct object_folder *folder, const char *beginning, struct object_listing *out,
                              struct error *err)
{
    char prefix[OBJECT_KEY_MAX];
    struct object_store *store = folder->root->of.store;
    int len = snprintf(prefix, sizeof(prefix), "%s%s", folder->prefix, beginning);
    if (len < 0 || (size_t)len >= sizeof(prefix)) {
        return error_set(err, TCK_ERR_INVAL, "%s: the key is too long", beginning);
    }
    tck_status_t status = store->ops->list(store, &folder->root->call, prefix, true, out, err);
    return status == TCK_ERR_NOENT ? (err->code = TCK_ERR_IO) : status;
}

/* The name in the folder; "": the key of the folder itself, which some tools make. */
static tck_status_t name_of(const struct object_folder *folder, const struct object_listed *listed, char **out,
                            struct error *err)
{
    const char *name = listed->key + strlen(folder->prefix);
    size_t len = strlen(name);
    *out = strndup(name, listed->folder && len > 0 ? len - 1 : len);
    return *out == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for the names of a folder") : TCK_OK;
}

tck_status_t object_folder_list(struct object_folder *folder, const char *beginning, struct names *out,
                                struct error *err)
{
    struct object_listing listing = {0};
    struct names names = {0};
    tck_status_t status = list_keys(folder, beginning, &listing, err);
    if (status != TCK_OK) {
        return status;
    }
    names.names = calloc(listing.count + 1, sizeof(*names.names));
    if (names.names == NULL) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for the names of a folder");
    }
    for (size_t i = 0; i < listing.count && status == TCK_OK; i++) {
        char *name = NULL;
        status = name_of(folder, &listing.objects[i], &name, err);
        if (status == TCK_OK && name[0] != '\0') {
            names.names[names.count++] = name;
        } else {
            free(name);
        }
    }
    object_listing_free(&listing);
    if (status != TCK_OK) {
        names_free(&names);
        return status;
    }
    *out = names;
    return TCK_OK;
}

/* ---- sizes ----------------------------------------------------------------------------------------------------- */

tck_status_t object_folder_gather(struct object_folder *folder, struct error *err)
{
    tck_status_t status = TCK_OK;
    pthread_mutex_lock(&folder->lock);
    if (!folder->gathered) {
        status = list_keys(folder, "", &folder->listing, err);
        folder->gathered = status == TCK_OK;
    }
    pthread_mutex_unlock(&folder->lock);
    return status;
}

static int compare_key(const void *key, const void *listed)
{
    return strcmp(key, ((const struct object_listed *)listed)->key);
}

/* False: nothing was gathered, and the store must be asked. */
static bool gathered_size(struct object_folder *folder, const char *key, const struct object_listed **out)
{
    pthread_mutex_lock(&folder->lock);
    bool gathered = folder->gathered;
    *out = gathered && folder->listing.count > 0
               ? bsearch(key, folder->listing.objects, folder->listing.count, sizeof(**out), compare_key)
               : NULL;
    pthread_mutex_unlock(&folder->lock);
    return gathered;
}

tck_status_t object_folder_size(struct object_folder *folder, const char *name, uint64_t *bytes_out, struct error *err)
{
    char key[OBJECT_KEY_MAX];
    const struct object_listed *listed;
    struct object_info info = {0};
    struct object_store *store = folder->root->of.store;
    tck_status_t status = object_folder_key(folder, name, key, err);
    if (status != TCK_OK) {
        return status;
    }
    if (gathered_size(folder, key, &listed)) {
        if (listed == NULL) {
            return error_set(err, TCK_ERR_NOENT, "%s/%s: there is no such object", store->name, key);
        }
        *bytes_out = listed->bytes;
        return TCK_OK;
    }
    status = store->ops->head(store, &folder->root->call, key, &info, err);
    if (status == TCK_OK) {
        *bytes_out = info.bytes;
    }
    return status;
}

/* ---- content --------------------------------------------------------------------------------------------------- */

/* NOLINTNEXTLINE(readability-function-size): the object, its limit and its content */
tck_status_t object_folder_read(struct object_folder *folder, const char *name, size_t max, char **text_out,
                                size_t *len_out, struct error *err)
{
    char key[OBJECT_KEY_MAX];
    struct object_store *store = folder->root->of.store;
    tck_status_t status = object_folder_key(folder, name, key, err);
    return status == TCK_OK ? store->ops->get(store, &folder->root->call, key, max, text_out, len_out, err) : status;
}

typedef tck_status_t put_op(struct object_store *store, const struct object_call *call, const char *key,
                            const struct object_bytes *value, struct error *err);

static tck_status_t put_bytes(struct object_folder *folder, const char *name, const struct object_bytes *value,
                              put_op *put, struct error *err)
{
    char key[OBJECT_KEY_MAX];
    tck_status_t status = object_folder_key(folder, name, key, err);
    return status == TCK_OK ? put(folder->root->of.store, &folder->root->call, key, value, err) : status;
}

tck_status_t object_folder_write(struct object_folder *folder, const char *name, const void *data, size_t len,
                                 struct error *err)
{
    uint32_t crc = crc32c(0, data, len);
    const struct object_bytes value = {.data = data, .bytes = len, .crc32c = &crc};
    return put_bytes(folder, name, &value, folder->root->of.store->ops->put, err);
}

tck_status_t object_folder_create(struct object_folder *folder, const char *name, const void *data, size_t len,
                                  struct error *err)
{
    uint32_t crc = crc32c(0, data, len);
    const struct object_bytes value = {.data = data, .bytes = len, .crc32c = &crc};
    return put_bytes(folder, name, &value, folder->root->of.store->ops->create, err);
}

tck_status_t object_folder_remove(struct object_folder *folder, const char *name, struct error *err)
{
    char key[OBJECT_KEY_MAX];
    struct object_store *store = folder->root->of.store;
    tck_status_t status = object_folder_key(folder, name, key, err);
    return status == TCK_OK ? store->ops->remove(store, &folder->root->call, key, err) : status;
}

/* NOLINTNEXTLINE(readability-function-size): the object, the range and the buffer */
tck_status_t object_folder_read_at(struct object_folder *folder, const char *name, uint64_t offset, void *buffer,
                                   uint64_t bytes, struct error *err)
{
    char key[OBJECT_KEY_MAX];
    struct object_store *store = folder->root->of.store;
    tck_status_t status = object_folder_key(folder, name, key, err);
    return status == TCK_OK ? store->ops->get_range(store, &folder->root->read, key, offset, buffer, bytes, err)
                            : status;
}
