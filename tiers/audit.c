/* SPDX-License-Identifier: Apache-2.0
 * Audit lines: {"wall_ms":..,"node":..,"op":..,"phase":"intent"|"result","what":..[,"status":..,"text":..]}. One write
 * per line with O_APPEND; each node has its own file, and its threads take turns. */
#include "tiers/audit.h"

#include "base/clock.h"
#include "base/config.h"
#include "base/failpoint.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct audit {
    int fd;
    char node[CONFIG_NAME];
    pthread_mutex_t lock; /* keeps a line in one piece if it takes more than one write */
    bool torn;            /* the file ends inside a line */
    audit_open_fn *open;  /* while fd is -1 */
    const void *open_ctx;
};

static const struct {
    const char *name;
    bool synced;
} ops[] = {
    [AUDIT_WRITE] = {"write", false},
    [AUDIT_PUBLISH] = {"publish", true},
    [AUDIT_DELETE] = {"delete", true},
    [AUDIT_REPAIR] = {"repair", true},
};

/* True if the file ends inside a line, as after a power loss. One that cannot be read counts as whole. */
static bool ends_torn(int fd)
{
    char last;
    off_t size = lseek(fd, 0, SEEK_END);
    return size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

tck_status_t audit_new(int fd, const char *node, struct audit **out, struct error *err)
{
    struct audit *audit = calloc(1, sizeof(*audit));
    if (audit == NULL) {
        close(fd);
        return error_set(err, TCK_ERR_NOMEM, "no memory for the audit file");
    }
    audit->fd = fd;
    pthread_mutex_init(&audit->lock, NULL);
    audit->torn = fd >= 0 && ends_torn(fd);
    snprintf(audit->node, sizeof(audit->node), "%s", node);
    *out = audit;
    return TCK_OK;
}

void audit_free(struct audit *audit)
{
    if (audit != NULL) {
        if (audit->fd >= 0) {
            close(audit->fd);
        }
        pthread_mutex_destroy(&audit->lock);
        free(audit);
    }
}

tck_status_t audit_move(struct audit *audit, int fd, struct error *err)
{
    tck_status_t status = TCK_OK;
    pthread_mutex_lock(&audit->lock);
    if (audit->fd < 0) {
        audit->fd = fd;
        audit->torn = ends_torn(fd);
        pthread_mutex_unlock(&audit->lock);
        return TCK_OK;
    }
    if (dup3(fd, audit->fd, O_CLOEXEC) < 0) {
        status = error_set(err, status_of_errno(errno), "replace the audit file: %m");
    } else {
        audit->torn = ends_torn(fd);
    }
    pthread_mutex_unlock(&audit->lock);
    close(fd);
    return status;
}

/* The line with its newline; the caller frees it. NULL if out of memory. */
static char *print_line(const struct audit *audit, enum audit_op op, const char *what, const struct error *outcome)
{
    char *line = NULL, *text = NULL;
    json_t *json = json_object();
    bool ok = json != NULL && json_add_u64(json, "wall_ms", clock_wall_ms()) &&
              json_add_str(json, "node", audit->node) && json_add_str(json, "op", ops[op].name) &&
              json_add_str(json, "phase", outcome == NULL ? "intent" : "result") && json_add_str(json, "what", what);
    if (ok && outcome != NULL) {
        ok = json_add_str(json, "status", status_text(outcome->code)) && json_add_str(json, "text", outcome->text);
    }
    if (ok) {
        text = json_print(json, false);
    }
    json_free(json);
    if (text == NULL || asprintf(&line, "%s\n", text) < 0) {
        line = NULL;
    }
    free(text);
    return line;
}

/* Writes the whole line, in as many writes as that takes. */
static tck_status_t write_line(struct audit *audit, const char *line, struct error *err)
{
    size_t len = strlen(line), done = 0;
    while (done < len) {
        ssize_t rc = failpoint_fails(audit, write) ? -1 : write(audit->fd, line + done, len - done);
        if (rc < 0 && errno == EINTR) {
            continue;
        }
        if (rc <= 0) {
            errno = rc < 0 ? errno : ENOSPC;
            audit->torn = audit->torn || done > 0;
            return error_set(err, status_of_errno(errno), "write the audit file: %m");
        }
        done += (size_t)rc;
    }
    return TCK_OK;
}

void audit_open_later(struct audit *audit, audit_open_fn *open, const void *ctx)
{
    audit->open = open;
    audit->open_ctx = ctx;
}

/* With the lock held. */
static tck_status_t make_open(struct audit *audit, struct error *err)
{
    if (audit->fd >= 0) {
        return TCK_OK;
    }
    tck_status_t status = audit->open(audit->open_ctx, &audit->fd, err);
    if (status == TCK_OK) {
        audit->torn = ends_torn(audit->fd);
        log_info("the audit file can be written again");
    }
    return status;
}

/* A line that was cut off is ended first, so that it does not spoil the next one. */
static tck_status_t append(struct audit *audit, const char *line, bool synced, struct error *err)
{
    pthread_mutex_lock(&audit->lock);
    tck_status_t status = make_open(audit, err);
    if (status == TCK_OK && audit->torn) {
        status = write_line(audit, "\n", err);
        audit->torn = status != TCK_OK;
    }
    if (status == TCK_OK) {
        status = write_line(audit, line, err);
    }
    pthread_mutex_unlock(&audit->lock);
    /* EINVAL: a pipe or device that has nothing to sync. */
    if (status == TCK_OK && synced && (failpoint_fails(audit, fdatasync) || fdatasync(audit->fd) < 0) &&
        errno != EINVAL) {
        status = error_set(err, status_of_errno(errno), "fdatasync of the audit file: %m");
    }
    return status;
}

static tck_status_t add(struct audit *audit, enum audit_op op, const char *what, const struct error *outcome,
                        struct error *err)
{
    char *line = print_line(audit, op, what, outcome);
    if (line == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a line of the audit file");
    }
    tck_status_t status = append(audit, line, ops[op].synced, err);
    free(line);
    return status;
}

tck_status_t audit_intent(struct audit *audit, enum audit_op op, const char *what, struct error *err)
{
    return add(audit, op, what, NULL, err);
}

void audit_result(struct audit *audit, enum audit_op op, const char *what, const struct error *outcome)
{
    struct error err = {0};
    if (add(audit, op, what, outcome, &err) != TCK_OK) {
        log_error("%s %s: its result could not be written to the audit file: %s", ops[op].name, what, err.text);
    }
}
