/* SPDX-License-Identifier: Apache-2.0
 * A trainer whose tensors are on the stand-in's devices, and a fake agent. */
#ifndef TCK_TESTS_CUDA_RIG_H
#define TCK_TESTS_CUDA_RIG_H

#include "client/client.h"
#include "cuda_standin.h"
#include "fake_agent.h"

#define RIG_PATIENCE_MS 60000 /* limit for events that must happen, even on a slow machine */
#define RIG_HOST        (-1)

struct tensor {
    char key[32];
    uint8_t *addr;
    uint64_t bytes;
    int device; /* RIG_HOST: none */
    bool eager;
    uint32_t number;
};

struct rig {
    struct fake_agent agent;
    char dir[32];
    tck_client_t *client;
    void *streams[STANDIN_DEVICES]; /* the training's */
    struct tensor *tensors;
    uint32_t count;
    bool heads; /* every other record that is added has one, as long as the key is */
};

/* Starts the agent and attaches. Any error ends the program. */
void rig_open(struct rig *rig);
/* The same with keys of the configuration, each with a comma before it. */
void rig_open_with(struct rig *rig, const char *settings);
/* Detaches and frees everything. */
void rig_close(struct rig *rig);
void rig_add(struct rig *rig, int device, uint64_t bytes, bool eager);
/* Registers the added records and, with `told`, reports the streams that the training uses. */
void rig_register(struct rig *rig, bool told);
/* Writes the values of a step to all tensors: at once, or as work on the training's streams. */
void rig_fill(struct rig *rig, uint8_t value);
void rig_launch_fill(struct rig *rig, uint8_t value);
void rig_sync(struct rig *rig);
/* True if all tensors hold this value. */
bool rig_holds(const struct rig *rig, uint8_t value);
/* True if the newest sealed images hold this value, with heads and zeros in the gaps. */
bool rig_image_holds(struct rig *rig, uint8_t value);
bool rig_image_has(struct rig *rig, const struct tensor *tensor, uint8_t value);
/* A save that must succeed; returns when the agent knows of it. */
void rig_save(struct rig *rig, uint64_t step);
void rig_ok(const struct rig *rig, tck_status_t status);

#endif
