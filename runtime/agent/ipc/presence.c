/* SPDX-License-Identifier: Apache-2.0
 * The name is bound before the file is locked, so that a second agent exits without touching the file. It is published
 * after that, so that no trainer connects to a process that does not become the agent. */
#include "agent/ipc/presence.h"

#include "agent/ipc/ipc_server.h"
#include "base/anchor.h"
#include "base/config.h"
#include "base/log.h"
#include "base/message.h"
#include "base/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct presence {
    struct presence_setup needs;
    struct place *place;
    int anchor_fd; /* -1: there is none */
    char dir[IPC_SERVER_DIR];
};

static tck_status_t listen_again(void *ctx, int dir_fd, struct error *err)
{
    struct presence *presence = ctx;
    (void)dir_fd;
    tck_status_t status = ipc_server_listen_again(*presence->needs.server, err);
    if (status == TCK_OK) {
        presence->needs.made_again(presence->needs.ctx);
    }
    return status;
}

static tck_status_t take_anchor(struct presence *presence, struct error *err)
{
    int dir_fd = -1;
    tck_status_t status = ipc_open_dir(presence->dir, &dir_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    status = anchor_take(dir_fd, ANCHOR_AGENT, &presence->anchor_fd, err);
    close(dir_fd);
    if (status == TCK_OK || status == TCK_ERR_EXIST) {
        return status;
    }
    log_warn("if %s is deleted, a second agent can start beside this one: %s", presence->dir, err->text);
    return TCK_OK;
}

/* Detects an agent of a build that does not lock the file. */
static bool has_listener(const char *dir)
{
    char path[IPC_SERVER_DIR + sizeof(IPC_SERVER_SOCKET) + 1];
    struct error ignored;
    int fd = -1;
    snprintf(path, sizeof(path), "%s/" IPC_SERVER_SOCKET, dir);
    tck_status_t status = ipc_connect(path, &fd, &ignored);
    if (status == TCK_OK) {
        close(fd);
    }
    return status == TCK_OK || status == TCK_ERR_BUSY;
}

static tck_status_t take_place(struct presence *presence, struct error *err)
{
    const struct place_setup setup = {.dir = presence->dir,
                                      .lock = AGENT_LOCK_FILE,
                                      .socket = IPC_SERVER_SOCKET,
                                      .role = "agent",
                                      .make = listen_again,
                                      .ctx = presence};
    tck_status_t status = place_take(&setup, &presence->place, err);
    if (status == TCK_OK && has_listener(presence->dir)) {
        return error_set(err, TCK_ERR_EXIST, "a process answers on its socket");
    }
    if (status == TCK_OK && presence->anchor_fd >= 0) {
        status = anchor_show(presence->anchor_fd, err);
    }
    return status;
}

tck_status_t presence_take(const struct presence_setup *setup, struct presence **out, struct error *err)
{
    const struct config *config = setup->config;
    struct presence *presence = calloc(1, sizeof(*presence));
    if (presence == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    presence->needs = *setup;
    presence->anchor_fd = -1;
    ipc_server_dir(config, presence->dir);
    tck_status_t status = take_anchor(presence, err);
    if (status == TCK_OK) {
        status = take_place(presence, err);
    }
    if (status == TCK_ERR_EXIST) {
        error_prefix(err, "an agent of job %s already serves node %s", config->job, config->node);
    }
    if (status != TCK_OK) {
        presence_free(presence);
        return status;
    }
    *out = presence;
    return TCK_OK;
}

void presence_free(struct presence *presence)
{
    if (presence == NULL) {
        return;
    }
    place_free(presence->place);
    if (presence->anchor_fd >= 0) {
        close(presence->anchor_fd);
    }
    free(presence);
}

tck_status_t presence_begin(struct presence *presence, struct error *err)
{
    tck_status_t status = place_note_socket(presence->place, err);
    if (status == TCK_OK && presence->anchor_fd >= 0) {
        status = ipc_server_serve(*presence->needs.server, presence->anchor_fd, err);
    }
    return status;
}

void presence_tick(struct presence *presence)
{
    place_tick(presence->place);
}
