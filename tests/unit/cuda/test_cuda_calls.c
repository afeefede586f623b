/* SPDX-License-Identifier: Apache-2.0
 * The module's table over the test's own CUDA runtime, which records its calls. Like the real one it gives a thread
 * without a context one on device 0, unless the call is one of the few that need none. */
#include "cuda/calls.h"

#include <criterion/criterion.h>
#include <string.h>

#define RELAXED    2
#define NEVER      99 /* what is not called would return */
#define DEVICES    4
#define NO_CONTEXT (-1)

static int current = NO_CONTEXT, mode, refused;
static bool has_context[DEVICES];
static int contexts[DEVICES];

static void lazy(void)
{
    if (current == NO_CONTEXT) {
        current = 0;
        has_context[0] = true;
    }
}

/* ---- the calls of the driver ----------------------------------------------------------------------------------- */

static int current_of_driver(void **context)
{
    *context = current == NO_CONTEXT ? NULL : &contexts[current];
    return 0;
}

static int set_current_of_driver(void *context)
{
    current = context == NULL ? NO_CONTEXT : (int)((int *)context - contexts);
    return 0;
}

/* ---- the calls of the runtime ---------------------------------------------------------------------------------- */

int cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version, unsigned long long flags,
                                     int *found);
int cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version, unsigned long long flags,
                                     int *found)
{
    (void)version, (void)flags;
    *out = strcmp(symbol, "cuCtxGetCurrent") == 0 ? (void *)(uintptr_t)current_of_driver
                                                  : (void *)(uintptr_t)set_current_of_driver;
    *found = 0;
    return 0;
}

int cudaGetDeviceCount(int *count);
int cudaGetDeviceCount(int *count)
{
    *count = DEVICES;
    return 0;
}

int cudaSetDevice(int device);
int cudaSetDevice(int device)
{
    current = device;
    has_context[device] = true;
    return 0;
}

int cudaThreadExchangeStreamCaptureMode(int *exchanged);
int cudaThreadExchangeStreamCaptureMode(int *exchanged)
{
    int before = mode;

    lazy();
    mode = *exchanged;
    *exchanged = before;
    return refused;
}

/* The table's other functions, which are not called here. */
#define UNUSED(name)  \
    int name(void);   \
    int name(void)    \
    {                 \
        return NEVER; \
    }
UNUSED(cudaDeviceGetStreamPriorityRange)
UNUSED(cudaEventCreateWithFlags)
UNUSED(cudaEventDestroy)
UNUSED(cudaEventRecord)
UNUSED(cudaEventSynchronize)
UNUSED(cudaFree)
UNUSED(cudaFreeHost)
UNUSED(cudaGetErrorString)
UNUSED(cudaHostAlloc)
UNUSED(cudaHostRegister)
UNUSED(cudaHostUnregister)
UNUSED(cudaMalloc)
UNUSED(cudaMemcpyAsync)
UNUSED(cudaMemsetAsync)
UNUSED(cudaPointerGetAttributes)
UNUSED(cudaStreamCreateWithPriority)
UNUSED(cudaStreamDestroy)
UNUSED(cudaStreamIsCapturing)
UNUSED(cudaStreamSynchronize)
UNUSED(cudaStreamWaitEvent)
UNUSED(__cudaRegisterFatBinary)
UNUSED(__cudaRegisterFatBinaryEnd)
UNUSED(__cudaUnregisterFatBinary)

int kernels_gather(void *stream, const struct gather_piece *pieces, uint32_t count, void *packed)
{
    (void)stream, (void)pieces, (void)count, (void)packed;
    return NEVER;
}

int kernels_scatter(void *stream, const struct gather_piece *pieces, uint32_t count, const void *packed)
{
    (void)stream, (void)pieces, (void)count, (void)packed;
    return NEVER;
}

int kernels_digest(void *stream, const void *image, uint64_t bytes, uint32_t *crcs)
{
    (void)stream, (void)image, (void)bytes, (void)crcs;
    return NEVER;
}

int kernels_digest_pieces(void *stream, const struct gather_piece *pieces, uint32_t count, uint64_t image_bytes,
                          uint32_t *crcs)
{
    (void)stream, (void)pieces, (void)count, (void)image_bytes, (void)crcs;
    return NEVER;
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

cuda_calls_fn tierckpt_cuda_calls;

static const struct cuda_calls *calls;
static struct cuda_place before;

static void setup(void)
{
    int count = 0;

    calls = tierckpt_cuda_calls();
    cr_assert_eq(calls->device_count(&count), 0);
    cr_assert_eq(count, DEVICES);
}

TestSuite(cuda_calls, .init = setup);

Test(cuda_calls, a_thread_that_enters_its_device_takes_memory_of_no_other_one)
{
    cr_assert_eq(calls->enter(3, &before), 0);
    cr_assert_eq(current, 3);
    cr_assert_eq(mode, RELAXED);
    calls->leave(&before);
    cr_assert_eq(current, NO_CONTEXT);
    cr_assert_eq(mode, 0);
    for (int i = 0; i < DEVICES; i++) {
        cr_assert_eq(has_context[i], i == 3, "device %d", i);
    }
}

Test(cuda_calls, a_thread_gets_back_the_device_and_the_mode_that_it_had)
{
    current = 1, mode = 1;
    cr_assert_eq(calls->enter(2, &before), 0);
    cr_assert_eq(current, 2);
    calls->leave(&before);
    cr_assert_eq(current, 1);
    cr_assert_eq(mode, 1);
}

Test(cuda_calls, a_device_that_cannot_be_entered_leaves_nothing_to_restore)
{
    current = 1, refused = 700;
    cr_assert_eq(calls->enter(2, &before), 700);
    cr_assert_eq(current, 1);
}
