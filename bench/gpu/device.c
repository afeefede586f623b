/* SPDX-License-Identifier: Apache-2.0
 * The module's calls, one at a time, waited for. */
#include "device.h"

#include "buffer.h"
#include "tierckpt.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct cuda_calls *load(void)
{
    char path[PATH_MAX + sizeof(CUDA_CALLS_MODULE)] = "";
    cuda_calls_fn *get = NULL;
    Dl_info library;
    void *module;
    if (dladdr((void *)(uintptr_t)tck_attach, &library) == 0 || realpath(library.dli_fname, path) == NULL) {
        bench_die("libtierckpt.so cannot be found");
    }
    strcpy(strrchr(path, '/') + 1, CUDA_CALLS_MODULE);
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (module == NULL) {
        bench_skip("no CUDA module: %s", dlerror());
    }
    *(void **)&get = dlsym(module, CUDA_CALLS_SYMBOL);
    if (get == NULL || get()->version != CUDA_CALLS_VERSION) {
        bench_die("%s is of another version", path);
    }
    return get();
}

void device_check(const struct device *device, int rc, const char *what)
{
    if (rc != 0) {
        bench_die("%s: %s", what, device->calls->error_text(rc));
    }
}

struct device device_open(void)
{
    struct device device = {.calls = load()};
    struct cuda_place nobody_comes_back;
    int count = 0, rc = device.calls->device_count(&count);
    if (rc != 0 || count == 0) {
        bench_skip("no CUDA device%s%s", rc == 0 ? "" : ": ", rc == 0 ? "" : device.calls->error_text(rc));
    }
    device_check(&device, device.calls->enter(0, &nobody_comes_back), "take device 0");
    device_check(&device, device.calls->stream_new(&device.stream), "make a stream");
    return device;
}

void *device_alloc(const struct device *device, size_t bytes)
{
    void *memory = NULL;
    device_check(device, device->calls->device_alloc(&memory, bytes), "device memory");
    return memory;
}

void *device_pinned(const struct device *device, size_t bytes)
{
    void *memory = NULL;
    device_check(device, device->calls->host_alloc(&memory, bytes), "pinned memory");
    memset(memory, 1, bytes);
    return memory;
}

void device_copy(const struct device *device, void *to, const void *from, size_t bytes)
{
    device_check(device, device->calls->copy(to, from, bytes, device->stream), "copy");
    device_check(device, device->calls->stream_sync(device->stream), "copy");
}

void device_fill(const struct device *device, void *to, size_t bytes)
{
    void *from = buffer_private(bytes);
    device_copy(device, to, from, bytes);
    buffer_free(from, bytes);
}

void device_copy_run(void *ctx, struct bench_go *go)
{
    const struct device_copy_job *job = ctx;
    bench_start(go);
    device_copy(job->device, job->to, job->from, job->bytes);
    bench_stop(go);
}
