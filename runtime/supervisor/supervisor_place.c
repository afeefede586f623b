/* SPDX-License-Identifier: Apache-2.0
 * The directory is also the working directory of supervisor and agent, so all three are replaced together. */
#include "supervisor/supervisor_place.h"

#include "base/anchor.h"
#include "base/clock.h"
#include "base/ipc.h"
#include "base/log.h"
#include "base/message.h"
#include "base/place.h"
#include "supervisor/supervisor_notify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static void open_log_again(const struct supervisor_place *p)
{
    struct error err;
    if (log_open(p->log, LOG_INFO, "supervisor", &err) != TCK_OK) {
        return; /* the old one stays; nobody can read it */
    }
    int fd = open(p->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) { /* output of agents that are started from now on */
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        close(fd);
    }
}

static tck_status_t move_in(struct supervisor_place *p, int dir_fd, struct error *err)
{
    int copy = fcntl(dir_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (copy < 0 || fchdir(copy) != 0) {
        tck_status_t status = error_set(err, status_of_errno(errno), "change to it: %m");
        if (copy >= 0) {
            close(copy);
        }
        return status;
    }
    close(p->dir_fd);
    p->dir_fd = copy;
    return TCK_OK;
}

static tck_status_t make_again(void *ctx, int dir_fd, struct error *err)
{
    struct supervisor_place *p = ctx;
    int fd = -1;
    tck_status_t status = notify_bind(dir_fd, &fd, err);
    if (status != TCK_OK) {
        return status;
    }
    status = move_in(p, dir_fd, err);
    if (status != TCK_OK) {
        close(fd);
        return status;
    }
    close(p->notify_fd);
    p->notify_fd = fd;
    if (p->log[0] != '-') {
        open_log_again(p);
    }
    return TCK_OK;
}

/* The name is shown at once, since nothing is asked by it. */
static tck_status_t take_anchor(struct supervisor_place *p, struct error *err)
{
    tck_status_t status = anchor_take(p->dir_fd, ANCHOR_SUPERVISOR, &p->anchor_fd, err);
    if (status == TCK_OK) {
        status = anchor_show(p->anchor_fd, err);
    }
    if (status == TCK_OK || status == TCK_ERR_EXIST) {
        return status;
    }
    fprintf(stderr, "tierckpt-supervisor: if this directory is deleted, a second one can start: %s\n", err->text);
    return TCK_OK;
}

tck_status_t supervisor_place_take(struct supervisor_place *p, const char *dir, const char *log, struct error *err)
{
    const struct place_setup setup = {.dir = dir,
                                      .lock = SUPERVISOR_LOCK_FILE,
                                      .socket = NOTIFY_SOCKET_NAME,
                                      .role = "supervisor",
                                      .make = make_again,
                                      .ctx = p};
    *p = (struct supervisor_place){.dir_fd = -1, .anchor_fd = -1, .notify_fd = -1, .log = log};
    p->dir_fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    tck_status_t status = take_anchor(p, err);
    if (status == TCK_OK) {
        status = place_take(&setup, &p->place, err);
    }
    if (status == TCK_OK) {
        status = notify_bind(p->dir_fd, &p->notify_fd, err);
    }
    return status == TCK_OK ? place_note_socket(p->place, err) : status;
}

void supervisor_place_free(struct supervisor_place *p)
{
    const int fds[] = {p->notify_fd, p->anchor_fd, p->dir_fd};
    place_free(p->place);
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

void supervisor_place_answer(const struct supervisor_place *p)
{
    struct error ignored;
    pid_t pid;
    int fd = -1;
    while (p->anchor_fd >= 0 && ipc_accept(p->anchor_fd, &fd, &pid, &ignored) == TCK_OK) {
        close(fd);
    }
}

void supervisor_place_tick(struct supervisor_place *p)
{
    uint64_t now = clock_ms();
    if (now - p->looked_ms >= PLACE_TICK_MS) {
        p->looked_ms = now;
        place_tick(p->place);
    }
}
