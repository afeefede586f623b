/* SPDX-License-Identifier: Apache-2.0
 * Our marker in the job's folder, without which nothing there is touched. */
#include "tiers/job_marker.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MARKER_FORMAT 1
#define MARKER_MAX    4096
#define NOT_OURS                                                                       \
    "its directory is not empty and has no " MARKER_NAME ", so it is not Tierckpt's: " \
    "choose another job name or save_dir"

tck_status_t marker_write(const struct persistent *p, struct error *err)
{
    json_t *json = json_object();
    char *text = NULL;
    if (json != NULL && json_add_u64(json, "format", MARKER_FORMAT) && json_add_str(json, "job", p->config->job)) {
        text = json_print(json, false);
    }
    json_free(json);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for " MARKER_NAME);
    }
    tck_status_t status = folder_write(&p->job, MARKER_NAME, text, strlen(text), err);
    free(text);
    return status;
}

tck_status_t marker_check(const struct persistent *p, const struct folder *job, struct error *err)
{
    char *text;
    size_t len;
    json_t *json;
    tck_status_t status = folder_read(job, MARKER_NAME, MARKER_MAX, &text, &len, err);
    if (status != TCK_OK) {
        return status;
    }
    status = json_parse(text, len, &json, err);
    free(text);
    if (status != TCK_OK) {
        error_prefix(err, MARKER_NAME);
        return status;
    }
    uint64_t format = 0;
    const char *name = json_str(json_get(json, "job"));
    if (!json_u64(json_get(json, "format"), &format) || format != MARKER_FORMAT) {
        status = error_set(err, TCK_ERR_PROTO, MARKER_NAME ": format %" PRIu64 ", this build reads format %d", format,
                           MARKER_FORMAT);
    } else if (name == NULL || strcmp(name, p->config->job) != 0) {
        status = error_set(err, TCK_ERR_DENIED, MARKER_NAME " belongs to job %s", name == NULL ? "?" : name);
    }
    json_free(json);
    return status;
}

/* Whether it contains nothing but markers that other agents are writing at this moment. */
static tck_status_t dir_is_unused(const struct persistent *p, bool *unused_out, struct error *err)
{
    struct names names;
    tck_status_t status = folder_list(&p->job, &names, err);
    if (status != TCK_OK) {
        return status;
    }
    *unused_out = true;
    for (size_t i = 0; i < names.count; i++) {
        *unused_out = *unused_out && strncmp(names.names[i], MARKER_NAME, strlen(MARKER_NAME)) == 0;
    }
    names_free(&names);
    return TCK_OK;
}

tck_status_t marker_find_or_make(const struct persistent *p, struct error *err)
{
    bool unused;
    tck_status_t status = marker_check(p, &p->job, err);
    if (status != TCK_ERR_NOENT) {
        return status;
    }
    status = dir_is_unused(p, &unused, err);
    if (status == TCK_OK && unused) {
        return marker_write(p, err);
    }
    if (status == TCK_OK) {
        status = marker_check(p, &p->job, err); /* another agent may have begun here since the first check */
    }
    return status == TCK_ERR_NOENT ? error_set(err, TCK_ERR_DENIED, NOT_OURS) : status;
}

/* A job directory without our marker is either just being made by its first agent, or not ours. */
tck_status_t marker_find(const struct persistent *p, struct error *err)
{
    bool unused = false;
    tck_status_t status = marker_check(p, &p->job, err);
    if (status == TCK_ERR_NOENT) {
        status = dir_is_unused(p, &unused, err);
    } else {
        return status;
    }
    return status == TCK_OK && !unused ? error_set(err, TCK_ERR_DENIED, NOT_OURS) : status;
}

/* A directory that lacks a claim seen earlier is another one, in which terms would be counted from the beginning, such
 * as the one below a mount point. */
tck_status_t marker_check_claim(const struct persistent *p, const struct folder *job, struct error *err)
{
    uint64_t bytes, claim = atomic_load(&p->claim_seen);
    char name[DIR_NAME_MAX];
    if (claim == 0) {
        return TCK_OK;
    }
    term_name(claim, name);
    tck_status_t status = folder_size(job, name, &bytes, err);
    return status == TCK_ERR_NOENT
               ? error_set(err, TCK_ERR_DENIED,
                           "it is not the directory that this agent's memory belongs to, which has %s: mount that "
                           "one, or end the agent to discard its memory",
                           name)
               : status;
}
