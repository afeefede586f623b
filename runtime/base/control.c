/* SPDX-License-Identifier: Apache-2.0
 * One request to this node's agent over its socket. */
#include "base/control.h"
#include "base/ipc.h"
#include "base/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tck_status_t exchange(int fd, const char *text, int answer_ms, json_t **out, struct error *err)
{
    struct ipc_frame frame;
    tck_status_t status = ipc_send(fd, MSG_CONTROL, text, strlen(text), NULL, 0, 1000, err);
    if (status != TCK_OK) {
        return status;
    }
    status = ipc_recv(fd, answer_ms, &frame, err);
    if (status != TCK_OK) {
        return error_prefix(err, "waiting for the agent's answer");
    }
    if (frame.type != MSG_CONTROL_REPLY) {
        status = error_set(err, TCK_ERR_PROTO, "the agent answered with message %u", frame.type);
    } else {
        status = json_parse((const char *)frame.payload, frame.len, out, err);
    }
    ipc_frame_free(&frame);
    return status;
}

static tck_status_t no_agent(const struct config *config, tck_status_t status, struct error *err)
{
    if (status != TCK_ERR_NOENT) {
        return error_prefix(err, "no agent of job %s answers on node %s", config->job, config->node);
    }
    return error_set(err, status,
                     "no agent of job %s runs on node %s (nothing is in %s/%s/%s): the job was not started here, or "
                     "its agent has exited",
                     config->job, config->node, config->runtime_dir, config->job, config->node);
}

tck_status_t control_ask(const struct config *config, const char *op, json_t *request, int answer_ms, json_t **out,
                         struct error *err)
{
    char path[3 * CONFIG_PATH];
    snprintf(path, sizeof(path), "%s/%s/%s/agent.sock", config->runtime_dir, config->job, config->node);
    json_t *json = request != NULL ? request : json_object();
    char *text = json != NULL && json_add_str(json, "op", op) ? json_print(json, false) : NULL;
    json_free(json);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "out of memory");
    }
    int fd = -1;
    tck_status_t status = ipc_connect(path, &fd, err);
    if (status != TCK_OK) {
        free(text);
        return no_agent(config, status, err);
    }
    status = exchange(fd, text, answer_ms, out, err);
    close(fd);
    free(text);
    return status;
}
