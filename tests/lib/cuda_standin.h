/* SPDX-License-Identifier: Apache-2.0
 * A stand-in for libtierckpt_cuda.so (runtime/cuda/calls.h): devices are stretches of host memory, streams are threads
 * with queues. It shows whether the client orders, waits, gives up and falls back as it should. It proves nothing about
 * kernels, drivers or speed.
 *
 * It is stricter than CUDA where the client is to be careful: calls outside of enter and leave, copies beyond the
 * memory that they are for, and memory or events given back while a stream has a use for them end the test. It knows no
 * order between the default stream and others. */
#ifndef TCK_TESTS_CUDA_STANDIN_H
#define TCK_TESTS_CUDA_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STANDIN_DEVICES 2
#define STANDIN_BROKEN  700 /* the error of a device that was broken */
#define STANDIN_REFUSED 2   /* the error of a call that was made to fail */

/* What a training does. */
void *standin_alloc(int device, size_t bytes);
void standin_free(void *memory);
void *standin_stream(int device); /* freed by standin_reset */
void standin_launch(void *stream, void (*work)(void *ctx), void *ctx);
void standin_sync(void *stream);
void standin_capture(void *stream);     /* begins */
bool standin_capture_end(void *stream); /* ends; whether it was left intact */
void standin_make_current(int device);  /* for the calling thread, as cudaSetDevice */
int standin_current(void);

/* A closed gate: copies by the client's streams stop half way, and work of standin_launch does not, until it opens. */
void standin_gate(bool open);
/* It stops only copies of at least so many bytes. */
void standin_gate_from(size_t bytes);
/* Until that many copies have come to the closed gate. */
void standin_await_at_gate(unsigned count);

/* The client's n-th copy from now on, 1 the next one, breaks its device: from then on all calls there fail. */
void standin_break_at(unsigned n);
void standin_refuse_pins(bool refuse);
/* The next copy of more than a page from the client to host memory arrives with a bit flipped. */
void standin_damage_next_copy(void);

/* What was asked for so far. */
struct standin_counts {
    unsigned pins, unpins, copies, gathers, scatters, streams, events;
    uint64_t device_bytes, host_bytes; /* that the client has allocated and not freed */
};
struct standin_counts standin_count(void);

/* All as in the beginning; nothing of it may be in use. */
void standin_reset(void);

#endif
