/* SPDX-License-Identifier: Apache-2.0
 * The audit file has one whole JSON line per intent and per result, whatever the texts contain. */
#include "tiers/audit.h"

#include "base/json.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int open_file(struct audit **audit)
{
    int fd = memfd_create("audit", 0);
    cr_assert(fd >= 0);
    int kept = dup(fd); /* audit_free closes the original */
    cr_assert_eq(audit_new(fd, "n0", audit, NULL), TCK_OK);
    return kept;
}

static json_t *next_line(const char **at)
{
    json_t *json;
    const char *end = strchr(*at, '\n');
    cr_assert_not_null(end, "a line without its end: %s", *at);
    cr_assert_eq(json_parse(*at, (size_t)(end - *at), &json, NULL), TCK_OK, "%s", *at);
    *at = end + 1;
    return json;
}

static const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_str(json_get(json, key));
    return text == NULL ? "" : text;
}

Test(audit, writes_intent_and_result_as_json_lines)
{
    struct audit *audit;
    struct error outcome = {.code = TCK_ERR_IO, .text = "fsync: \"bad\"\n{disk}"};
    char file[4096] = {0};
    const char *at = file;
    int fd = open_file(&audit);
    cr_assert_eq(audit_intent(audit, AUDIT_DELETE, "v1\"\n", NULL), TCK_OK);
    audit_result(audit, AUDIT_DELETE, "v1\"\n", &outcome);
    cr_assert(pread(fd, file, sizeof(file) - 1, 0) > 0);

    json_t *intent = next_line(&at), *result = next_line(&at);
    cr_assert_str_eq(text_of(intent, "op"), "delete");
    cr_assert_str_eq(text_of(intent, "phase"), "intent");
    cr_assert_str_eq(text_of(intent, "what"), "v1\"\n");
    cr_assert_str_eq(text_of(intent, "node"), "n0");
    cr_assert_str_eq(text_of(result, "phase"), "result");
    cr_assert_str_eq(text_of(result, "status"), "input/output error");
    cr_assert_str_eq(text_of(result, "text"), outcome.text);
    cr_assert_str_empty(at);
    json_free(intent);
    json_free(result);
    audit_free(audit);
    close(fd);
}

Test(audit, fails_an_intent_that_cannot_be_written)
{
    struct audit *audit;
    struct error err = {0};
    cr_assert_eq(audit_new(open("/dev/full", O_WRONLY), "n0", &audit, NULL), TCK_OK);
    cr_assert_eq(audit_intent(audit, AUDIT_PUBLISH, "v1", &err), TCK_ERR_NOSPC, "%s", err.text);
    audit_free(audit);
}

Test(audit, accepts_a_device_that_has_no_sync)
{
    struct audit *audit;
    cr_assert_eq(audit_new(open("/dev/null", O_WRONLY), "n0", &audit, NULL), TCK_OK);
    cr_assert_eq(audit_intent(audit, AUDIT_PUBLISH, "v1", NULL), TCK_OK);
    audit_free(audit);
}

/* ---- a file that cannot be opened yet ---- */

static int opens_at; /* of these attempts the last succeeds */

static tck_status_t open_at_last(const void *ctx, int *fd_out, struct error *err)
{
    if (--opens_at > 0) {
        return error_set(err, TCK_ERR_IO, "open %s: Read-only file system", (const char *)ctx);
    }
    *fd_out = memfd_create("audit", 0);
    return TCK_OK;
}

Test(audit, a_file_that_cannot_be_opened_fails_intents_until_it_can)
{
    struct audit *audit;
    struct error err = {0};
    opens_at = 2;
    cr_assert_eq(audit_new(-1, "n0", &audit, NULL), TCK_OK);
    audit_open_later(audit, open_at_last, "/save/audit");
    cr_assert_eq(audit_intent(audit, AUDIT_PUBLISH, "v1", &err), TCK_ERR_IO);
    cr_assert_str_eq(err.text, "open /save/audit: Read-only file system");
    cr_assert_eq(audit_intent(audit, AUDIT_PUBLISH, "v1", &err), TCK_OK, "%s", err.text);
    cr_assert_eq(audit_intent(audit, AUDIT_PUBLISH, "v2", &err), TCK_OK, "%s", err.text);
    cr_assert_eq(opens_at, 0, "it is opened once");
    audit_free(audit);
}

Test(audit, a_file_that_cannot_be_opened_is_replaced_by_another_one)
{
    struct audit *audit;
    struct error err = {0};
    cr_assert_eq(audit_new(-1, "n0", &audit, NULL), TCK_OK);
    cr_assert_eq(audit_move(audit, memfd_create("audit", 0), &err), TCK_OK);
    cr_assert_eq(audit_intent(audit, AUDIT_PUBLISH, "v1", &err), TCK_OK, "%s", err.text);
    audit_free(audit);
}
