/* SPDX-License-Identifier: Apache-2.0
 * Fills the table of calls.h with the functions of the CUDA runtime. The only file that includes its headers.
 *
 * Never calls cudaGetLastError: it would clear errors that other code has caused and has not read yet. */
#include "cuda/calls.h"

#include <cuda.h>
#include <cuda_runtime.h>

#define DRIVER_VERSION                                                                             \
    12000 /* the version passed to look up the two driver functions that are used, which are older \
             than that */

/* The context of a thread is restored through the driver, because the training uses another copy of the CUDA
 * runtime, which keeps its own record of the current device. */
static struct driver {
    CUresult (*current)(CUcontext *context);
    CUresult (*set_current)(CUcontext context);
} driver;

static const char *error_text(int error)
{
    return cudaGetErrorString((cudaError_t)error);
}

static int find_driver(const char *name, void **out)
{
    cudaDriverEntryPointQueryResult found;
    cudaError_t rc = cudaGetDriverEntryPointByVersion(name, out, DRIVER_VERSION, cudaEnableDefault, &found);

    if (rc != cudaSuccess) {
        return (int)rc;
    }
    return found == cudaDriverEntryPointSuccess ? 0 : (int)cudaErrorInsufficientDriver;
}

/* Called before all others, from one thread. */
static int device_count(int *count_out)
{
    int rc = (int)cudaGetDeviceCount(count_out);

    if (rc == 0) {
        rc = find_driver("cuCtxGetCurrent", (void **)&driver.current);
    }
    return rc == 0 ? find_driver("cuCtxSetCurrent", (void **)&driver.set_current) : rc;
}

static void leave(const struct cuda_place *before)
{
    cudaStreamCaptureMode mode = (cudaStreamCaptureMode)before->capture_mode;

    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    (void)driver.set_current((CUcontext)before->context);
}

/* The device is set first: any other call of the runtime, made while the thread has no context, would create one on
 * device 0 and use memory there. */
static int enter(int device, struct cuda_place *before_out)
{
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    CUcontext context = NULL;
    int rc;

    if (driver.current(&context) != CUDA_SUCCESS) {
        return (int)cudaErrorDeviceUninitialized;
    }
    rc = (int)cudaSetDevice(device);
    if (rc == 0) {
        rc = (int)cudaThreadExchangeStreamCaptureMode(&mode);
    }
    if (rc != 0) {
        (void)driver.set_current(context);
        return rc;
    }
    before_out->context = context;
    before_out->capture_mode = (int)mode;
    return 0;
}

static int is_on(int device, const void *addr, bool *out)
{
    cudaPointerAttributes attributes;
    int rc = (int)cudaPointerGetAttributes(&attributes, addr);

    if (rc == 0) {
        bool kind = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;

        *out = kind && attributes.device == device;
    }
    return rc;
}

static int stream_new(void **stream_out)
{
    int lowest = 0, highest = 0;
    int rc = (int)cudaDeviceGetStreamPriorityRange(&lowest, &highest);

    return rc == 0 ? (int)cudaStreamCreateWithPriority((cudaStream_t *)stream_out, cudaStreamNonBlocking, lowest) : rc;
}

static void stream_free(void *stream)
{
    (void)cudaStreamDestroy((cudaStream_t)stream);
}

static int stream_sync(void *stream)
{
    return (int)cudaStreamSynchronize((cudaStream_t)stream);
}

static int stream_wait(void *stream, void *event)
{
    return (int)cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0);
}

/* Also detects a default stream that would be drawn into the capture of another stream; the query does not
 * invalidate that capture. */
static int stream_capturing(void *stream, bool *out)
{
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    cudaError_t rc = cudaStreamIsCapturing((cudaStream_t)stream, &state);

    if (rc != cudaSuccess && rc != cudaErrorStreamCaptureImplicit) {
        return (int)rc;
    }
    *out = rc == cudaErrorStreamCaptureImplicit || state != cudaStreamCaptureStatusNone;
    return 0;
}

static int event_new(void **event_out)
{
    return (int)cudaEventCreateWithFlags((cudaEvent_t *)event_out, cudaEventBlockingSync | cudaEventDisableTiming);
}

static void event_free(void *event)
{
    (void)cudaEventDestroy((cudaEvent_t)event);
}

static int event_record(void *event, void *stream)
{
    return (int)cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream);
}

static int event_sync(void *event)
{
    return (int)cudaEventSynchronize((cudaEvent_t)event);
}

static int copy(void *to, const void *from, uint64_t bytes, void *stream)
{
    return (int)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream);
}

static int zero(void *device_memory, uint64_t bytes, void *stream)
{
    return (int)cudaMemsetAsync(device_memory, 0, bytes, (cudaStream_t)stream);
}

static int device_alloc(void **out, uint64_t bytes)
{
    return (int)cudaMalloc(out, bytes);
}

static void device_free(void *device_memory)
{
    (void)cudaFree(device_memory);
}

static int host_alloc(void **out, uint64_t bytes)
{
    return (int)cudaHostAlloc(out, bytes, cudaHostAllocPortable);
}

static void host_free(void *host_memory)
{
    (void)cudaFreeHost(host_memory);
}

static int pin(void *base, uint64_t bytes)
{
    return (int)cudaHostRegister(base, bytes, cudaHostRegisterPortable);
}

static void unpin(void *base)
{
    (void)cudaHostUnregister(base);
}

static const struct cuda_calls calls = {
    CUDA_CALLS_VERSION,
    error_text,
    device_count,
    enter,
    leave,
    is_on,
    stream_new,
    stream_free,
    stream_sync,
    stream_wait,
    stream_capturing,
    event_new,
    event_free,
    event_record,
    event_sync,
    copy,
    zero,
    device_alloc,
    device_free,
    host_alloc,
    host_free,
    pin,
    unpin,
    kernels_gather,
    kernels_scatter,
    kernels_digest,
    kernels_digest_pieces,
};

extern "C" __attribute__((visibility("default"))) const struct cuda_calls *tierckpt_cuda_calls(void);

const struct cuda_calls *tierckpt_cuda_calls(void)
{
    return &calls;
}
