/* SPDX-License-Identifier: Apache-2.0
 * Documents as a table: where an element is, and which text of ours it fills. */
#include "tiers/object/s3_xml.h"
#include "tiers/object/aws_files.h"

#include <errno.h>
#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PATH_MAX_BYTES 160
#define DEPTH_MAX      24

static const struct {
    const char *root;
    enum s3_document_kind kind;
} roots[] = {
    {"Error", S3_DOC_ERROR},
    {"ErrorResponse", S3_DOC_ERROR}, /* of STS */
    {"ListBucketResult", S3_DOC_LIST},
    {"ListMultipartUploadsResult", S3_DOC_UPLOADS},
    {"InitiateMultipartUploadResult", S3_DOC_INITIATED},
    {"InitiateMultipartUpload", S3_DOC_INITIATED}, /* of rclone */
    {"CompleteMultipartUploadResult", S3_DOC_COMPLETED},
    {"AssumeRoleWithWebIdentityResponse", S3_DOC_ROLE},
};

static const struct {
    const char *path;
    size_t at; /* of a text in struct s3_document */
} texts[] = {
#define TEXT(path, member)                         \
    {                                              \
        path, offsetof(struct s3_document, member) \
    }
#define ROLE(element) "AssumeRoleWithWebIdentityResponse/AssumeRoleWithWebIdentityResult/Credentials/" element
    TEXT("Error/Code", code),
    TEXT("Error/Message", message),
    TEXT("ErrorResponse/Error/Code", code),
    TEXT("ErrorResponse/Error/Message", message),
    TEXT("ListBucketResult/IsTruncated", truncated),
    TEXT("ListBucketResult/EncodingType", encoding),
    TEXT("ListBucketResult/NextContinuationToken", next_token),
    TEXT("ListMultipartUploadsResult/IsTruncated", truncated),
    TEXT("ListMultipartUploadsResult/EncodingType", encoding),
    TEXT("ListMultipartUploadsResult/NextKeyMarker", next_key),
    TEXT("ListMultipartUploadsResult/NextUploadIdMarker", next_upload_id),
    TEXT("InitiateMultipartUploadResult/UploadId", upload_id),
    TEXT("InitiateMultipartUpload/UploadId", upload_id),
    TEXT("CompleteMultipartUploadResult/ETag", etag),
    TEXT(ROLE("AccessKeyId"), access_key),
    TEXT(ROLE("SecretAccessKey"), secret_key),
    TEXT(ROLE("SessionToken"), session_token),
    TEXT(ROLE("Expiration"), expiration),
#undef TEXT
#undef ROLE
};

/* Elements that stand for an entry each, and whether for a folder. */
static const struct {
    const char *path;
    bool folder;
} entries[] = {
    {"ListBucketResult/Contents", false},
    {"ListBucketResult/CommonPrefixes", true},
    {"ListMultipartUploadsResult/Upload", false},
};

struct decoder {
    XML_Parser parser;
    struct s3_document *out;
    char path[PATH_MAX_BYTES]; /* of the element, from the root */
    char value[S3_XML_VALUE_MAX];
    size_t value_len, cap;
    unsigned depth, passed_over; /* elements whose path is too long for any that we know */
    tck_status_t status;
};

static void give_up(struct decoder *d, tck_status_t status)
{
    if (d->status == TCK_OK) {
        d->status = status;
        XML_StopParser(d->parser, XML_FALSE);
    }
}

static void add_entry(struct decoder *d, bool folder)
{
    struct s3_document *out = d->out;
    if (out->count == d->cap) {
        size_t cap = d->cap == 0 ? 64 : 2 * d->cap;
        struct s3_entry *grown = realloc(out->entries, cap * sizeof(*grown));
        if (grown == NULL) {
            give_up(d, TCK_ERR_NOMEM);
            return;
        }
        out->entries = grown;
        d->cap = cap;
    }
    out->entries[out->count++] = (struct s3_entry){.folder = folder};
}

static void on_start(void *ctx, const XML_Char *name, const XML_Char **attributes)
{
    struct decoder *d = ctx;
    (void)attributes;
    d->value_len = 0;
    if (++d->depth > DEPTH_MAX) {
        give_up(d, TCK_ERR_PROTO);
        return;
    }
    size_t len = strlen(d->path);
    if (d->passed_over > 0 || len + strlen(name) + 2 > sizeof(d->path)) {
        d->passed_over++;
        return;
    }
    char *end = stpcpy(d->path + len, len == 0 ? "" : "/");
    strcpy(end, name);
    for (size_t i = 0; len == 0 && i < sizeof(roots) / sizeof(*roots); i++) {
        if (strcmp(name, roots[i].root) == 0) {
            d->out->kind = roots[i].kind;
        }
    }
    for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
        if (strcmp(d->path, entries[i].path) == 0) {
            add_entry(d, entries[i].folder);
        }
    }
}

static void on_text(void *ctx, const XML_Char *text, int len)
{
    struct decoder *d = ctx;
    if (d->value_len + (size_t)len >= sizeof(d->value)) {
        give_up(d, TCK_ERR_PROTO);
        return;
    }
    memcpy(d->value + d->value_len, text, (size_t)len);
    d->value_len += (size_t)len;
}

/* The first value stays: a second element of the name is not in any document of S3. */
static void keep_text(struct decoder *d, char **place)
{
    if (*place == NULL) {
        *place = strdup(d->value);
        if (*place == NULL) {
            give_up(d, TCK_ERR_NOMEM);
        }
    }
}

static void keep_size(struct decoder *d, uint64_t *place)
{
    char *end;
    errno = 0;
    unsigned long long size = strtoull(d->value, &end, 10);
    if (d->value[0] < '0' || d->value[0] > '9' || *end != '\0' || errno != 0) {
        give_up(d, TCK_ERR_PROTO);
        return;
    }
    *place = size;
}

static void take_value(struct decoder *d)
{
    struct s3_document *out = d->out;
    struct s3_entry *entry = out->count > 0 ? &out->entries[out->count - 1] : NULL;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        if (strcmp(d->path, texts[i].path) == 0) {
            keep_text(d, (char **)(void *)((char *)out + texts[i].at));
            return;
        }
    }
    if (entry == NULL) {
        return;
    }
    if (strcmp(d->path, "ListBucketResult/Contents/Size") == 0) {
        keep_size(d, &entry->bytes);
    } else if (strcmp(d->path, "ListBucketResult/Contents/Key") == 0 ||
               strcmp(d->path, "ListBucketResult/CommonPrefixes/Prefix") == 0 ||
               strcmp(d->path, "ListMultipartUploadsResult/Upload/Key") == 0) {
        keep_text(d, &entry->key);
    } else if (strcmp(d->path, "ListMultipartUploadsResult/Upload/UploadId") == 0) {
        keep_text(d, &entry->upload_id);
    }
}

static void on_end(void *ctx, const XML_Char *name)
{
    struct decoder *d = ctx;
    (void)name;
    d->depth--;
    if (d->passed_over > 0) {
        d->passed_over--;
        d->value_len = 0;
        return;
    }
    d->value[d->value_len] = '\0';
    take_value(d);
    d->value_len = 0;
    char *slash = strrchr(d->path, '/');
    *(slash == NULL ? d->path : slash) = '\0';
}

/* No document of S3 has one, and entities could make a small text large. */
static void on_doctype(void *ctx, const XML_Char *name, const XML_Char *system, const XML_Char *public, int internal)
{
    (void)name;
    (void)system;
    (void)public;
    (void)internal;
    give_up(ctx, TCK_ERR_PROTO);
}

static int digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* In place. What is no percent-encoding stays, and never becomes a NUL. */
static void percent_decode(char *text)
{
    char *to = text;
    for (; text != NULL && *text != '\0'; text++) {
        int high = *text == '%' ? digit(text[1]) : -1;
        int low = high >= 0 ? digit(text[2]) : -1;
        if (low >= 0 && (high | low) != 0) {
            *to++ = (char)(high << 4 | low);
            text += 2;
        } else {
            *to++ = (char)(*text == '+' ? ' ' : *text);
        }
    }
    if (to != NULL) {
        *to = '\0';
    }
}

static void decode_keys(struct s3_document *out)
{
    if (out->encoding == NULL || strcmp(out->encoding, "url") != 0) {
        return;
    }
    for (size_t i = 0; i < out->count; i++) {
        percent_decode(out->entries[i].key);
    }
    percent_decode(out->next_key);
}

static tck_status_t parse(struct decoder *d, const char *text, size_t len, struct error *err)
{
    XML_SetUserData(d->parser, d);
    XML_SetElementHandler(d->parser, on_start, on_end);
    XML_SetCharacterDataHandler(d->parser, on_text);
    XML_SetStartDoctypeDeclHandler(d->parser, on_doctype);
    bool whole = XML_Parse(d->parser, text, (int)len, XML_TRUE) == XML_STATUS_OK;
    if (d->status == TCK_ERR_NOMEM) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for an XML document");
    }
    if (d->status != TCK_OK) {
        return error_set(err, d->status, "the XML document has a doctype, or a value that is too long or no number");
    }
    if (!whole) {
        return error_set(err, TCK_ERR_PROTO, "not a whole XML document: %s at line %lu",
                         XML_ErrorString(XML_GetErrorCode(d->parser)), XML_GetCurrentLineNumber(d->parser));
    }
    decode_keys(d->out);
    return TCK_OK;
}

tck_status_t s3_xml_decode(const char *text, size_t len, struct s3_document *out, struct error *err)
{
    struct s3_document document = {0};
    if (len > S3_XML_MAX) {
        return error_set(err, TCK_ERR_PROTO, "an XML document of %zu bytes is over the limit of %u", len, S3_XML_MAX);
    }
    struct decoder *d = calloc(1, sizeof(*d));
    XML_Parser parser = XML_ParserCreate(NULL);
    tck_status_t status = TCK_OK;
    if (d == NULL || parser == NULL) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for an XML document");
    } else {
        d->parser = parser;
        d->out = &document;
        status = parse(d, text, len, err);
        explicit_bzero(d->value, sizeof(d->value));
    }
    if (parser != NULL) {
        XML_ParserFree(parser);
    }
    free(d);
    if (status == TCK_OK) {
        *out = document;
    } else {
        s3_document_free(&document);
    }
    return status;
}

bool s3_document_truncated(const struct s3_document *document)
{
    const char *next = document->next_token != NULL ? document->next_token : document->next_key;
    return document->truncated != NULL ? strcasecmp(document->truncated, "true") == 0 : next != NULL && next[0] != '\0';
}

void s3_document_free(struct s3_document *document)
{
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        char **place = (char **)(void *)((char *)document + texts[i].at);
        aws_wipe(*place);
        *place = NULL; /* two paths may fill one text */
    }
    for (size_t i = 0; i < document->count; i++) {
        free(document->entries[i].key);
        free(document->entries[i].upload_id);
    }
    free(document->entries);
    *document = (struct s3_document){0};
}

bool s3_xml_escape(const char *text, char *out, size_t cap)
{
    size_t len = 0;
    out[0] = '\0';
    for (; *text != '\0'; text++) {
        const char *escape = *text == '"' ? "&quot;" : *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : NULL;
        int n =
            escape != NULL ? snprintf(out + len, cap - len, "%s", escape) : snprintf(out + len, cap - len, "%c", *text);
        if (n < 0 || (size_t)n >= cap - len) {
            return false;
        }
        len += (size_t)n;
    }
    return true;
}
