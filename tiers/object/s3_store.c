/* SPDX-License-Identifier: Apache-2.0
 * The store of a bucket: made of its parts, and taken apart. */
#include "tiers/object/s3_store.h"
#include "tiers/object/s3_call.h"
#include "tiers/object/s3_list.h"
#include "tiers/object/s3_objects.h"
#include "tiers/object/s3_uploads.h"
#include "tiers/object/trust.h"

#include <stdlib.h>

static void cancel(struct object_store *store)
{
    struct s3_store *s = (struct s3_store *)store;
    atomic_store(&s->canceled, true);
    http_client_cancel(s->http);
}

static void release(struct object_store *store)
{
    struct s3_store *s = (struct s3_store *)store;
    aws_holder_free(s->credentials);
    http_client_free(s->http);
    aws_profile_free(&s->profile);
    free(s);
}

static const struct object_ops ops = {.put = s3_put,
                                      .create = s3_create,
                                      .get = s3_get,
                                      .get_range = s3_get_range,
                                      .head = s3_head,
                                      .list = s3_list,
                                      .remove = s3_remove,
                                      .upload_begin = s3_upload_begin,
                                      .upload_part = s3_upload_part,
                                      .upload_finish = s3_upload_finish,
                                      .upload_abort = s3_upload_abort,
                                      .uploads = s3_uploads,
                                      .cancel = cancel,
                                      .free = release};

static tck_status_t fill(struct s3_store *s, const char *url, struct error *err)
{
    tck_status_t status = aws_profile_load(&s->profile, err);
    if (status == TCK_OK) {
        status = s3_settings_load(url, &s->profile, &s->settings, err);
    }
    if (status == TCK_OK) {
        const char *bundle = aws_variable("AWS_CA_BUNDLE");
        status = http_client_new(trust_file(bundle != NULL ? bundle : s->profile.ca_bundle), &s->http, err);
    }
    if (status == TCK_OK) {
        s->lookup = (struct aws_lookup){.http = s->http, .profile = &s->profile, .region = s->settings.region};
        status = aws_holder_new(&s->lookup, &s->credentials, err);
    }
    return status;
}

tck_status_t s3_store_new(const char *url, struct object_store **out, struct error *err)
{
    struct s3_store *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a store");
    }
    *s = (struct s3_store){
        .base = {.ops = &ops, .name = s->settings.name}, .deadline_ms = S3_DEADLINE_MS, .quiet_s = S3_QUIET_S};
    tck_status_t status = fill(s, url, err);
    if (status != TCK_OK) {
        release(&s->base);
        return status;
    }
    *out = &s->base;
    return TCK_OK;
}
