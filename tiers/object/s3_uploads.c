/* SPDX-License-Identifier: Apache-2.0
 * Multipart uploads, each part with its CRC32C. */
#include "tiers/object/s3_uploads.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/digest.h"
#include "tiers/object/s3_call.h"
#include "tiers/object/s3_objects.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_TEXT_BYTES 768
#define LIST_BYTES      (16u << 20)

tck_status_t s3_upload_begin(struct object_store *store, const struct object_call *call, const char *key,
                             struct object_upload *out, struct error *err)
{
    struct s3_store *s = (struct s3_store *)store;
    struct s3_reply reply;
    struct s3_ask ask = {
        .verb = "begin an upload",
        .method = "POST",
        .key = key,
        .query = {{"uploads", ""}},
        .headers = {{"content-type", "application/octet-stream"}, {"x-amz-checksum-algorithm", "CRC32C"}},
        .expects = S3_DOC_INITIATED};
    if (strlen(key) >= sizeof(out->key)) {
        return error_set(err, TCK_ERR_INVAL, "%.150s: the key %.150s is too long", s->base.name, key);
    }
    tck_status_t status = s3_call(s, call, &ask, &reply, err);
    if (status == TCK_OK && reply.document.upload_id == NULL) {
        status = error_set(err, TCK_ERR_IO, "%.150s/%.150s: the upload that was begun has no id", s->base.name, key);
    }
    if (status == TCK_OK) {
        *out = (struct object_upload){.id = reply.document.upload_id};
        strcpy(out->key, key);
        reply.document.upload_id = NULL;
    }
    s3_reply_free(&reply);
    return status;
}

tck_status_t s3_upload_part(struct object_store *store, const struct object_call *call,
                            const struct object_upload *upload, uint32_t number, const struct object_bytes *value,
                            struct object_part *out, struct error *err)
{
    struct s3_store *s = (struct s3_store *)store;
    struct object_part part = {.bytes = value->bytes};
    char digits[12], crc[S3_CRC_BYTES];
    struct s3_reply reply;
    part.crc32c = value->crc32c != NULL ? *value->crc32c : crc32c(0, value->data, value->bytes);
    snprintf(digits, sizeof(digits), "%" PRIu32, number);
    s3_crc_text(part.crc32c, crc);
    struct s3_ask ask = {.verb = "send a part",
                         .method = "PUT",
                         .key = upload->key,
                         .query = {{"partNumber", digits}, {"uploadId", upload->id}},
                         .headers = {{"content-type", "application/octet-stream"}, {"x-amz-checksum-crc32c", crc}},
                         .body = value->data,
                         .body_bytes = value->bytes};
    tck_status_t status = s3_call(s, call, &ask, &reply, err);
    if (status == TCK_OK && reply.headers.etag[0] == '\0') {
        status = error_set(err, TCK_ERR_IO, "%.150s/%.150s: part %s: the answer has no ETag", s->base.name, upload->key,
                           digits);
    }
    if (status == TCK_OK) {
        strcpy(part.etag, reply.headers.etag);
        *out = part;
    }
    s3_reply_free(&reply);
    return status;
}

static void write_part(struct writer *w, const struct object_part *part, uint32_t number)
{
    char etag[6 * sizeof(part->etag)], crc[S3_CRC_BYTES], text[PART_TEXT_BYTES];
    s3_crc_text(part->crc32c, crc);
    w->failed |= !s3_xml_escape(part->etag, etag, sizeof(etag));
    int len = snprintf(text, sizeof(text),
                       "<Part><ETag>%s</ETag><PartNumber>%" PRIu32 "</PartNumber><ChecksumCRC32C>%s</ChecksumCRC32C>"
                       "</Part>",
                       etag, number, crc);
    write_bytes(w, text, (size_t)len);
}

static void write_parts(struct writer *w, const struct object_part *parts, uint32_t count)
{
    static const char first[] = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
    static const char last[] = "</CompleteMultipartUpload>";
    write_bytes(w, first, sizeof(first) - 1);
    for (uint32_t i = 0; i < count; i++) {
        write_part(w, &parts[i], i + 1);
    }
    write_bytes(w, last, sizeof(last) - 1);
}

/* The upload is gone after an attempt whose answer was lost: that attempt has finished it, if the object is there with
 * the size of the parts and, where ETags tell, their number. Otherwise the upload's own error stays. */
static tck_status_t was_finished(struct s3_store *s, const struct object_call *call, const char *key,
                                 const struct object_part *parts, uint32_t count, struct error *err)
{
    struct object_info info;
    struct error why;
    uint64_t bytes = 0;
    tck_status_t status = s3_head(&s->base, call, key, &info, &why);
    if (status != TCK_OK && status != TCK_ERR_NOENT) {
        *err = why; /* it is not known */
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        bytes += parts[i].bytes;
    }
    const char *dash = status == TCK_OK ? strrchr(info.etag, '-') : NULL;
    bool number_fits = dash == NULL || strtoul(dash + 1, NULL, 10) == count;
    return status == TCK_OK && info.bytes == bytes && number_fits ? TCK_OK : TCK_ERR_NOENT;
}

static tck_status_t finish(struct s3_store *s, const struct object_call *call, const struct object_upload *upload,
                           const struct crypto_bytes *body, struct s3_reply *reply, struct error *err)
{
    struct s3_ask ask = {.verb = "finish an upload",
                         .method = "POST",
                         .key = upload->key,
                         .query = {{"uploadId", upload->id}},
                         .headers = {{"content-type", "application/xml"}},
                         .body = body->data,
                         .body_bytes = body->len,
                         .slow = true,
                         .expects = S3_DOC_COMPLETED};
    return s3_call(s, call, &ask, reply, err);
}

static void drop(struct object_upload *upload)
{
    free(upload->id);
    upload->id = NULL;
}

tck_status_t s3_upload_finish(struct object_store *store, const struct object_call *call, struct object_upload *upload,
                              const struct object_part *parts, uint32_t count, struct error *err)
{
    struct s3_store *s = (struct s3_store *)store;
    struct object_call own = call == NULL ? (struct object_call){0} : *call;
    uint64_t begun = clock_ms();
    struct writer w = writer_new(LIST_BYTES);
    tck_status_t status;
    own.deadline_ms = own.deadline_ms == 0 ? S3_FINISH_MS : own.deadline_ms;
    write_parts(&w, parts, count);
    if (w.failed) {
        status = error_set(err, TCK_ERR_NOMEM, "%.150s/%.150s: no memory for the list of its parts", s->base.name,
                           upload->key);
    } else {
        struct s3_reply reply;
        status = finish(s, &own, upload, &(struct crypto_bytes){w.data, w.len}, &reply, err);
        if (status == TCK_ERR_NOENT && reply.uncertain && strcmp(reply.code, "NoSuchUpload") == 0) {
            struct object_call rest = s3_call_rest(s, &own, begun, S3_REST_MS);
            status = was_finished(s, &rest, upload->key, parts, count, err);
        }
        s3_reply_free(&reply);
    }
    writer_free(&w);
    if (status != TCK_ERR_TIMEDOUT) {
        drop(upload);
    }
    return status;
}

tck_status_t s3_upload_abort(struct object_store *store, const struct object_call *call, struct object_upload *upload,
                             struct error *err)
{
    struct s3_reply reply;
    struct s3_ask ask = {
        .verb = "abort an upload", .method = "DELETE", .key = upload->key, .query = {{"uploadId", upload->id}}};
    tck_status_t status = s3_call((struct s3_store *)store, call, &ask, &reply, err);
    if (status == TCK_ERR_NOENT) {
        status = TCK_OK; /* finished, or aborted before */
    }
    s3_reply_free(&reply);
    drop(upload);
    return status;
}
