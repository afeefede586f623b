/* SPDX-License-Identifier: Apache-2.0
 * ListObjectsV2 and ListMultipartUploads. A page that leaves open where the next one begins is an error: what is
 * missing from a listing counts as not there. */
#include "tiers/object/s3_list.h"
#include "base/clock.h"
#include "tiers/object/s3_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A listing while its pages come. */
struct pages {
    struct s3_store *s;
    const struct object_call *call;
    uint64_t begun_ms;
    char prefix[2 * OBJECT_KEY_MAX]; /* with the store's */
    const char *verb;
    char *token, *upload_token; /* where the next page begins; NULL: the first one, or no such token */
};

static tck_status_t begin(struct pages *p, const char *prefix, struct error *err)
{
    p->begun_ms = clock_ms();
    int len = snprintf(p->prefix, sizeof(p->prefix), "%s%s", p->s->settings.prefix, prefix);
    return len < (int)sizeof(p->prefix)
               ? TCK_OK
               : error_set(err, TCK_ERR_INVAL, "%.150s: the prefix to list is too long", p->s->base.name);
}

static void end(struct pages *p)
{
    free(p->token);
    free(p->upload_token);
}

static tck_status_t damaged(const struct pages *p, const char *why, struct error *err)
{
    return error_set(err, TCK_ERR_IO, "%.150s: %s: %s", p->s->base.name, p->verb, why);
}

/* The key without the store's prefix; NULL: it is not below what was asked for. */
static const char *relative(const struct pages *p, const char *key)
{
    return key != NULL && strncmp(key, p->prefix, strlen(p->prefix)) == 0 ? key + strlen(p->s->settings.prefix) : NULL;
}

static bool same(const char *a, const char *b)
{
    return a == NULL ? b == NULL : b != NULL && strcmp(a, b) == 0;
}

/* Takes the tokens for the next page from the document. */
static tck_status_t turn_page(struct pages *p, char **token, char **upload_token, struct error *err)
{
    if (*token == NULL) {
        return damaged(p, "the page is not the last one, but does not say where the next one begins", err);
    }
    if (same(p->token, *token) && same(p->upload_token, upload_token == NULL ? NULL : *upload_token)) {
        return damaged(p, "the next page is the same one again", err);
    }
    end(p);
    p->token = *token;
    *token = NULL;
    p->upload_token = NULL;
    if (upload_token != NULL) {
        p->upload_token = *upload_token;
        *upload_token = NULL;
    }
    return TCK_OK;
}

static tck_status_t check_size(const struct pages *p, size_t count, size_t more, struct error *err)
{
    return count + more <= S3_LIST_MAX
               ? TCK_OK
               : error_set(err, TCK_ERR_IO,
                           "%.150s: %s: there are more than %d entries below %.150s: remove what is not needed there, "
                           "or choose another prefix",
                           p->s->base.name, p->verb, S3_LIST_MAX, p->prefix);
}

/* Room for `more` elements of `size` bytes behind `count`; the array stays as it is if there is none. */
static bool grow(void *array_at, size_t count, size_t more, size_t size)
{
    void **array = array_at;
    void *grown = reallocarray(*array, count + more + 1, size);
    if (grown != NULL) {
        *array = grown;
    }
    return grown != NULL;
}

/* ---- objects -------------------------------------------------------------------------------------------------- */

static tck_status_t take_objects(const struct pages *p, const struct s3_document *page, struct object_listing *out,
                                 struct error *err)
{
    tck_status_t status = check_size(p, out->count, page->count, err);
    if (status != TCK_OK) {
        return status;
    }
    if (!grow(&out->objects, out->count, page->count, sizeof(*out->objects))) {
        return error_set(err, TCK_ERR_NOMEM, "%.150s: list: no memory", p->s->base.name);
    }
    for (size_t i = 0; i < page->count; i++) {
        const struct s3_entry *entry = &page->entries[i];
        const char *key = relative(p, entry->key);
        if (key == NULL) {
            return damaged(p, "a key in the answer is not below what was asked for", err);
        }
        if (key[0] == '\0') {
            continue; /* some tools make an empty object of a prefix */
        }
        struct object_listed *listed = &out->objects[out->count];
        *listed = (struct object_listed){.key = strdup(key), .bytes = entry->bytes, .folder = entry->folder};
        if (listed->key == NULL) {
            return error_set(err, TCK_ERR_NOMEM, "%.150s: list: no memory", p->s->base.name);
        }
        out->count++;
    }
    return TCK_OK;
}

static tck_status_t list_page(struct pages *p, bool folders, struct object_listing *out, bool *more, struct error *err)
{
    struct s3_reply reply;
    struct object_call rest = s3_call_rest(p->s, p->call, p->begun_ms, 1);
    struct s3_ask ask = {.verb = p->verb,
                         .method = "GET",
                         .query = {{"continuation-token", p->token},
                                   {"delimiter", folders ? "/" : NULL},
                                   {"encoding-type", "url"},
                                   {"list-type", "2"},
                                   {"prefix", p->prefix}},
                         .collect_max = S3_XML_MAX,
                         .expects = S3_DOC_LIST};
    tck_status_t status = s3_call(p->s, &rest, &ask, &reply, err);
    if (status == TCK_OK) {
        status = take_objects(p, &reply.document, out, err);
        *more = s3_document_truncated(&reply.document);
    }
    if (status == TCK_OK && *more) {
        status = turn_page(p, &reply.document.next_token, NULL, err);
    }
    s3_reply_free(&reply);
    return status;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct object_listed *)a)->key, ((const struct object_listed *)b)->key);
}

tck_status_t s3_list(struct object_store *store, const struct object_call *call, const char *prefix, bool folders,
                     struct object_listing *out, struct error *err)
{
    struct pages p = {.s = (struct s3_store *)store, .call = call, .verb = "list"};
    struct object_listing listing = {0};
    bool more = true;
    tck_status_t status = begin(&p, prefix, err);
    while (status == TCK_OK && more) {
        status = list_page(&p, folders, &listing, &more, err);
    }
    end(&p);
    if (status != TCK_OK) {
        object_listing_free(&listing);
        return status;
    }
    if (listing.count > 0) {
        qsort(listing.objects, listing.count, sizeof(*listing.objects), by_key);
    }
    *out = listing;
    return TCK_OK;
}

/* Of the keys that begin so, the key itself is the first one. */
tck_status_t s3_list_has(struct object_store *store, const struct object_call *call, const char *key, bool *has_out,
                         struct error *err)
{
    struct pages p = {.s = (struct s3_store *)store, .call = call, .verb = "list"};
    struct object_listing listing = {0};
    struct s3_reply reply = {0};
    tck_status_t status = begin(&p, key, err);
    struct s3_ask ask = {
        .verb = p.verb,
        .method = "GET",
        .query = {{"encoding-type", "url"}, {"list-type", "2"}, {"max-keys", "1"}, {"prefix", p.prefix}},
        .collect_max = S3_XML_MAX,
        .expects = S3_DOC_LIST};
    if (status == TCK_OK) {
        status = s3_call(p.s, call, &ask, &reply, err);
    }
    if (status == TCK_OK) {
        status = take_objects(&p, &reply.document, &listing, err);
    }
    *has_out = false;
    for (size_t i = 0; i < listing.count; i++) {
        *has_out |= strcmp(listing.objects[i].key, key) == 0;
    }
    object_listing_free(&listing);
    s3_reply_free(&reply);
    return status;
}

/* ---- uploads -------------------------------------------------------------------------------------------------- */

struct uploads {
    struct object_upload *items;
    size_t count;
};

static tck_status_t take_uploads(const struct pages *p, struct s3_document *page, struct uploads *out,
                                 struct error *err)
{
    tck_status_t status = check_size(p, out->count, page->count, err);
    if (status != TCK_OK) {
        return status;
    }
    if (!grow(&out->items, out->count, page->count, sizeof(*out->items))) {
        return error_set(err, TCK_ERR_NOMEM, "%.150s: uploads: no memory", p->s->base.name);
    }
    for (size_t i = 0; i < page->count; i++) {
        struct s3_entry *entry = &page->entries[i];
        const char *key = relative(p, entry->key);
        if (key == NULL || entry->upload_id == NULL) {
            return damaged(p, "an upload in the answer has no id, or is not below what was asked for", err);
        }
        if (strlen(key) >= OBJECT_KEY_MAX) {
            continue; /* not one of ours, which are all shorter */
        }
        struct object_upload *upload = &out->items[out->count++];
        strcpy(upload->key, key);
        upload->id = entry->upload_id;
        entry->upload_id = NULL;
    }
    return TCK_OK;
}

static tck_status_t uploads_page(struct pages *p, struct uploads *out, bool *more, struct error *err)
{
    struct s3_reply reply;
    struct object_call rest = s3_call_rest(p->s, p->call, p->begun_ms, 1);
    struct s3_ask ask = {.verb = p->verb,
                         .method = "GET",
                         .query = {{"encoding-type", "url"},
                                   {"key-marker", p->token},
                                   {"prefix", p->prefix},
                                   {"upload-id-marker", p->upload_token},
                                   {"uploads", ""}},
                         .collect_max = S3_XML_MAX,
                         .expects = S3_DOC_UPLOADS};
    tck_status_t status = s3_call(p->s, &rest, &ask, &reply, err);
    if (status == TCK_OK) {
        status = take_uploads(p, &reply.document, out, err);
        *more = s3_document_truncated(&reply.document);
    }
    if (status == TCK_OK && *more) {
        status = turn_page(p, &reply.document.next_key, &reply.document.next_upload_id, err);
    }
    s3_reply_free(&reply);
    return status;
}

tck_status_t s3_uploads(struct object_store *store, const struct object_call *call, const char *prefix,
                        struct object_upload **out, size_t *count_out, struct error *err)
{
    struct pages p = {.s = (struct s3_store *)store, .call = call, .verb = "list uploads"};
    struct uploads found = {0};
    bool more = true;
    tck_status_t status = begin(&p, prefix, err);
    while (status == TCK_OK && more) {
        status = uploads_page(&p, &found, &more, err);
    }
    end(&p);
    if (status == TCK_OK) {
        *out = found.items;
        *count_out = found.count;
        return TCK_OK;
    }
    for (size_t i = 0; i < found.count; i++) {
        free(found.items[i].id);
    }
    free(found.items);
    return status;
}
