/* SPDX-License-Identifier: Apache-2.0
 * Reads and writes the file of forgotten.h: {"format":1,"term":T,"wall_ms":W}, replaced as a whole. */
#include "tiers/forgotten.h"

#include "base/json.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FORGOTTEN_MAX 4096

static tck_status_t decode(const json_t *json, uint64_t *term_out, struct error *err)
{
    uint64_t format = 0;
    if (!json_u64(json_get(json, "format"), &format) || format != FORGOTTEN_FORMAT) {
        return error_set(err, TCK_ERR_PROTO, FORGOTTEN_NAME ": format %" PRIu64 ", this build reads format %d", format,
                         FORGOTTEN_FORMAT);
    }
    if (!json_u64(json_get(json, "term"), term_out)) {
        return error_set(err, TCK_ERR_CORRUPT, FORGOTTEN_NAME ": it names no term");
    }
    return TCK_OK;
}

tck_status_t forgotten_read(const struct folder *job, uint64_t *term_out, struct error *err)
{
    char *text;
    size_t len;
    json_t *json;
    tck_status_t status = folder_read(job, FORGOTTEN_NAME, FORGOTTEN_MAX, &text, &len, err);
    if (status == TCK_ERR_NOENT) {
        *term_out = 0;
        return TCK_OK;
    }
    if (status != TCK_OK) {
        return status;
    }
    status = json_parse(text, len, &json, err);
    free(text);
    if (status != TCK_OK) {
        return error_prefix(err, FORGOTTEN_NAME);
    }
    status = decode(json, term_out, err);
    json_free(json);
    return status;
}

tck_status_t forgotten_write(const struct folder *job, uint64_t term, uint64_t wall_ms, struct error *err)
{
    json_t *json = json_object();
    char *text = NULL;
    if (json != NULL && json_add_u64(json, "format", FORGOTTEN_FORMAT) && json_add_u64(json, "term", term) &&
        json_add_u64(json, "wall_ms", wall_ms)) {
        text = json_print(json, false);
    }
    json_free(json);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for " FORGOTTEN_NAME);
    }
    tck_status_t status = folder_write(job, FORGOTTEN_NAME, text, strlen(text), err);
    free(text);
    return status;
}
