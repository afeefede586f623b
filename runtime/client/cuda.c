/* SPDX-License-Identifier: Apache-2.0
 * All devices of a client together. Each operation is applied to all of them, since a snapshot is complete or
 * useless. */
#include "client/cuda.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "client/cuda_device.h"
#include "client/install_paths.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct cuda {
    struct device base;
    const struct cuda_calls *calls;
    int device_count;
    struct cuda_device *lanes; /* one for each device of the machine; those that are open have a stream */
    bool unpinned_told, wants_digests;
};

static struct cuda *cuda_of(struct device *device)
{
    return (struct cuda *)device;
}

static const struct cuda *const_cuda_of(const struct device *device)
{
    return (const struct cuda *)device;
}

/* ---- the module ---------------------------------------------------------------------------------------------- */

static tck_status_t module_path(const char *chosen, char out[PATH_MAX], struct error *err)
{
    char dir[PATH_MAX];
    int len;

    if (chosen == NULL && !library_dir(dir)) {
        return error_set(err, TCK_ERR_UNSUPPORTED,
                         "the CUDA module " CUDA_CALLS_MODULE " must lie beside libtierckpt.so, "
                         "whose directory cannot be determined");
    }
    len =
        chosen != NULL ? snprintf(out, PATH_MAX, "%s", chosen) : snprintf(out, PATH_MAX, "%s/" CUDA_CALLS_MODULE, dir);
    return len > 0 && len < PATH_MAX ? TCK_OK : error_set(err, TCK_ERR_INVAL, "the CUDA module's path is too long");
}

/* Never unloaded: the CUDA runtime inside does not survive that. */
static tck_status_t load(const char *path, const struct cuda_calls **out, struct error *err)
{
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    cuda_calls_fn *get = NULL;
    const char *why = module == NULL ? dlerror() : NULL; /* begins with the path */

    if (module == NULL) {
        return error_set(err, TCK_ERR_UNSUPPORTED, "the CUDA module cannot be loaded: %s", why == NULL ? path : why);
    }
    *(void **)&get = dlsym(module, CUDA_CALLS_SYMBOL);
    if (get == NULL || get()->version != CUDA_CALLS_VERSION) {
        return error_set(err, TCK_ERR_UNSUPPORTED, "the CUDA module %s is of another version than libtierckpt.so",
                         path);
    }
    *out = get();
    return TCK_OK;
}

static tck_status_t count_devices(struct cuda *cuda, struct error *err)
{
    int rc = cuda->calls->device_count(&cuda->device_count);

    if (rc != 0) {
        return error_set(err, TCK_ERR_UNSUPPORTED, "there is no CUDA device to use: %s", cuda->calls->error_text(rc));
    }
    cuda->lanes = calloc((size_t)cuda->device_count + 1, sizeof(*cuda->lanes));
    return cuda->lanes == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for %d CUDA devices", cuda->device_count)
                               : TCK_OK;
}

static struct cuda_device *lane_of(const struct cuda *cuda, int device)
{
    bool open = device >= 0 && device < cuda->device_count && cuda->lanes[device].calls != NULL;

    return open ? &cuda->lanes[device] : NULL;
}

/* The first that is open, or the next one behind this. */
static struct cuda_device *next_lane(const struct cuda *cuda, const struct cuda_device *behind)
{
    for (int i = behind == NULL ? 0 : (int)(behind - cuda->lanes) + 1; i < cuda->device_count; i++) {
        if (cuda->lanes[i].calls != NULL) {
            return &cuda->lanes[i];
        }
    }
    return NULL;
}

/* ---- slots --------------------------------------------------------------------------------------------------- */

static bool cuda_pin(struct device *device, void *base, size_t bytes, uint32_t page_bytes)
{
    struct cuda *cuda = cuda_of(device);
    const struct cuda_device *dev = next_lane(cuda, NULL); /* any device will do: memory pinned by one is pinned for
                                                              all */
    struct cuda_place before;
    uint64_t begin_ns = clock_ns();
    int rc;

    if (dev == NULL || cuda->calls->enter(dev->device, &before) != 0) {
        return false;
    }
    rc = cuda->calls->pin(base, bytes);
    cuda->calls->leave(&before);
    if (rc == 0) {
        log_info("%zu bytes of slots in pages of %u pinned for CUDA in %.1f ms", bytes, page_bytes,
                 (double)(clock_ns() - begin_ns) / 1e6);
    } else if (!cuda->unpinned_told) {
        cuda->unpinned_told = true;
        log_warn(
            "%zu bytes of slots cannot be pinned for CUDA (%s): copies go through %u MiB of pinned buffers for each "
            "device, and keep a thread busy",
            bytes, cuda->calls->error_text(rc), (RING_PARTS * RING_PART_BYTES) >> 20);
    }
    return rc == 0;
}

static void cuda_unpin(struct device *device, void *base)
{
    const struct cuda *cuda = cuda_of(device);
    const struct cuda_device *dev = next_lane(cuda, NULL);
    struct cuda_place before;

    if (dev != NULL && cuda->calls->enter(dev->device, &before) == 0) {
        cuda->calls->unpin(base);
        cuda->calls->leave(&before);
    }
}

/* ---- what lies where ----------------------------------------------------------------------------------------- */

static tck_status_t check_address(const struct cuda_device *dev, const void *addr, struct error *err)
{
    struct cuda_place before;
    bool is_there = false;
    int rc = dev->calls->enter(dev->device, &before);

    if (rc == 0) {
        rc = dev->calls->is_on(dev->device, addr, &is_there);
        dev->calls->leave(&before);
    }
    if (rc != 0) {
        return error_set(err, TCK_ERR_INVAL, "address %p: %s", addr, dev->calls->error_text(rc));
    }
    return is_there ? TCK_OK
                    : error_set(err, TCK_ERR_INVAL, "address %p is not memory of CUDA device %d", addr, dev->device);
}

static tck_status_t cuda_place_record(struct device *base, int device, const void *addr, struct error *err)
{
    struct cuda *cuda = cuda_of(base);
    tck_status_t status = TCK_OK;

    if (device < 0 || device >= cuda->device_count) {
        return error_set(err, TCK_ERR_INVAL, "there is no CUDA device %d; this process sees %d", device,
                         cuda->device_count);
    }
    struct cuda_device *dev = &cuda->lanes[device];
    bool is_first = lane_of(cuda, device) == NULL;
    if (is_first) {
        status = cuda_device_open(dev, cuda->calls, device, err);
    }
    if (status == TCK_OK && addr != NULL) {
        status = check_address(dev, addr, err);
        if (status != TCK_OK && is_first) { /* otherwise fences would wait for the stream of a device without records */
            cuda_device_close(dev);
        }
    }
    return status;
}

static tck_status_t cuda_prepare(struct device *device, const struct device_setup *setup, struct error *err)
{
    struct cuda *cuda = cuda_of(device);
    tck_status_t status = TCK_OK;

    cuda->wants_digests = setup->wants_digests;
    for (struct cuda_device *dev = next_lane(cuda, NULL); dev != NULL; dev = next_lane(cuda, dev)) {
        dev->wants_digests = setup->wants_digests;
        if (status == TCK_OK && dev->lists == NULL) {
            status = cuda_device_prepare(dev, setup->layout, err);
        }
    }
    return status;
}

static void cuda_relocate(struct device *device, const struct layout *layout, uint32_t record)
{
    const struct cuda *cuda = cuda_of(device);
    struct cuda_device *dev = lane_of(cuda, layout->records[record].device);

    if (dev != NULL) {
        cuda_device_relocate(dev, layout, record);
    }
}

static tck_status_t cuda_set_stream(struct device *base, int device, void *stream, struct error *err)
{
    struct cuda_device *dev = lane_of(cuda_of(base), device);

    if (dev == NULL) {
        return error_set(err, TCK_ERR_INVAL, "no record lies on CUDA device %d", device);
    }
    dev->stream = stream;
    dev->told = true;
    return TCK_OK;
}

/* ---- the trainer's side -------------------------------------------------------------------------------------- */

static tck_status_t mark_all(const struct cuda *cuda, bool eager, struct error *err)
{
    tck_status_t status = TCK_OK;

    for (struct cuda_device *dev = next_lane(cuda, NULL); dev != NULL; dev = next_lane(cuda, dev)) {
        status = status == TCK_OK ? cuda_device_mark(dev, eager, err) : status;
    }
    return status;
}

static tck_status_t cuda_mark(struct device *device, struct error *err)
{
    return mark_all(cuda_of(device), true, err);
}

/* The training's own stream copies them aside. */
static bool cuda_awaits_eager(const struct device *device)
{
    (void)device;
    return false;
}

/* True if the streams of all devices are known. */
static bool cuda_can_hold(const struct device *device)
{
    const struct cuda *cuda = const_cuda_of(device);
    bool told = next_lane(cuda, NULL) != NULL;

    for (struct cuda_device *dev = next_lane(cuda, NULL); dev != NULL; dev = next_lane(cuda, dev)) {
        told = told && dev->told;
    }
    return told;
}

static tck_status_t cuda_hold(struct device *device, struct error *err)
{
    const struct cuda *cuda = cuda_of(device);
    tck_status_t status = TCK_OK;

    for (struct cuda_device *dev = next_lane(cuda, NULL); dev != NULL; dev = next_lane(cuda, dev)) {
        status = status == TCK_OK ? cuda_device_hold(dev, err) : status;
    }
    return status;
}

/* ---- copies -------------------------------------------------------------------------------------------------- */

static tck_status_t start_all(const struct cuda *cuda, struct error *err)
{
    tck_status_t status = TCK_OK;

    for (struct cuda_device *dev = next_lane(cuda, NULL); dev != NULL; dev = next_lane(cuda, dev)) {
        status = status == TCK_OK ? cuda_device_start(dev, err) : status;
    }
    return status;
}

static tck_status_t end_all(const struct cuda *cuda, struct error *err)
{
    tck_status_t status = TCK_OK;

    for (struct cuda_device *dev = next_lane(cuda, NULL); dev != NULL; dev = next_lane(cuda, dev)) {
        status = status == TCK_OK ? cuda_device_end(dev, err) : status;
    }
    return status;
}

/* All digests are queued before the first copy, so that their roots are known while copies are in progress. */
static tck_status_t digest_all(const struct cuda *cuda, const struct device_image *images, uint32_t count,
                               struct error *err)
{
    tck_status_t status = TCK_OK;

    for (struct cuda_device *dev = next_lane(cuda, NULL); dev != NULL; dev = next_lane(cuda, dev)) {
        for (uint32_t i = 0; i < count && status == TCK_OK; i++) {
            status = cuda_device_digest(dev, images[i].shard, err);
        }
        status = status == TCK_OK ? cuda_device_digested(dev, err) : status;
    }
    return status;
}

static tck_status_t copy_all(const struct cuda *cuda, enum way way, const struct device_image *image, struct error *err)
{
    tck_status_t status = TCK_OK;

    for (struct cuda_device *dev = next_lane(cuda, NULL); dev != NULL; dev = next_lane(cuda, dev)) {
        const struct copy_plan *plans = way == TO_IMAGE ? dev->lists : dev->restores;

        if (status == TCK_OK) {
            status = cuda_device_copy(dev, &plans[image->shard], way, image->pinned, image->image, err);
        }
    }
    return status;
}

static tck_status_t copy_images(const struct cuda *cuda, enum way way, const struct device_image *images,
                                uint32_t count, struct error *err)
{
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < count && status == TCK_OK; i++) {
        status = copy_all(cuda, way, &images[i], err);
    }
    return status == TCK_OK ? end_all(cuda, err) : status;
}

static tck_status_t cuda_save_eager(struct device *device, const struct device_image *images, uint32_t count,
                                    struct error *err)
{
    (void)device, (void)images, (void)count, (void)err;
    return TCK_OK;
}

/* The devices copy without help from this thread, unless slots are not pinned. */
static tck_status_t cuda_save(struct device *device, const struct device_image *images, uint32_t count,
                              struct error *err)
{
    const struct cuda *cuda = cuda_of(device);
    tck_status_t status = start_all(cuda, err);

    if (status == TCK_OK) {
        status = digest_all(cuda, images, count, err);
    }
    return status == TCK_OK ? copy_images(cuda, TO_IMAGE, images, count, err) : status;
}

static tck_status_t cuda_await_digests(struct device *device, struct error *err)
{
    const struct cuda *cuda = cuda_of(device);
    tck_status_t status = TCK_OK;

    for (struct cuda_device *dev = next_lane(cuda, NULL); dev != NULL; dev = next_lane(cuda, dev)) {
        status = status == TCK_OK ? cuda_device_await_digests(dev, err) : status;
    }
    return status;
}

/* Waits for all devices and returns the first error. */
static tck_status_t cuda_finish(struct device *device, struct error *err)
{
    const struct cuda *cuda = cuda_of(device);
    tck_status_t status = TCK_OK;

    for (struct cuda_device *dev = next_lane(cuda, NULL); dev != NULL; dev = next_lane(cuda, dev)) {
        tck_status_t mine = cuda_device_finish(dev, status == TCK_OK ? err : NULL);

        status = status == TCK_OK ? mine : status;
    }
    return status;
}

/* Adds the devices' sums of a shard; true if any device contributed. */
static bool add_sums(const struct cuda *cuda, uint32_t shard, uint32_t chunks, uint32_t *sums)
{
    bool any = false;

    for (struct cuda_device *dev = next_lane(cuda, NULL); dev != NULL; dev = next_lane(cuda, dev)) {
        const struct device_digest *digest = dev->digests == NULL ? NULL : &dev->digests[shard];

        for (uint32_t i = 0; digest != NULL && digest->count > 0 && i < chunks; i++) {
            sums[i] ^= digest->sums[i];
            any = true;
        }
    }
    return any;
}

static bool cuda_root(const struct device *device, const struct layout *layout, const struct device_image *image,
                      struct hash128 *out)
{
    const struct cuda *cuda = const_cuda_of(device);
    uint64_t bytes = layout->shards[image->shard].image_bytes;
    uint32_t chunks = chunk_count(bytes);
    uint32_t *sums = cuda->wants_digests ? calloc(chunks + (size_t)1, sizeof(*sums)) : NULL;
    bool any = sums != NULL && add_sums(cuda, image->shard, chunks, sums);

    if (any) {
        host_digest_add(layout, &layout->shards[image->shard], image->image, sums);
        *out = digest_of_sums(sums, bytes);
    }
    free(sums);
    return any;
}

/* ---- restoring ----------------------------------------------------------------------------------------------- */

static tck_status_t cuda_restore_prepare(struct device *device, const struct layout *layout, struct error *err)
{
    const struct cuda *cuda = cuda_of(device);
    tck_status_t status = TCK_OK;

    for (struct cuda_device *dev = next_lane(cuda, NULL); dev != NULL; dev = next_lane(cuda, dev)) {
        status = status == TCK_OK ? cuda_device_restore_prepare(dev, layout, err) : status;
    }
    return status;
}

static tck_status_t cuda_restore(struct device *device, const struct device_image *images, uint32_t count,
                                 struct error *err)
{
    const struct cuda *cuda = cuda_of(device);
    tck_status_t status = mark_all(cuda, false, err);

    if (status == TCK_OK) {
        status = start_all(cuda, err);
    }
    return status == TCK_OK ? copy_images(cuda, FROM_IMAGE, images, count, err) : status;
}

static void cuda_restore_over(struct device *device)
{
    const struct cuda *cuda = cuda_of(device);

    for (struct cuda_device *dev = next_lane(cuda, NULL); dev != NULL; dev = next_lane(cuda, dev)) {
        cuda_device_restore_over(dev);
    }
}

static tck_status_t cuda_write(struct device *base, int device, void *to, const void *from, uint64_t bytes,
                               struct error *err)
{
    struct cuda_device *dev = lane_of(cuda_of(base), device);

    return dev == NULL ? error_set(err, TCK_ERR_INTERNAL, "CUDA device %d is not open", device)
                       : cuda_device_write(dev, to, from, bytes, err);
}

/* ---- the table ----------------------------------------------------------------------------------------------- */

static void cuda_rest(const struct device *device)
{
    const struct cuda *cuda = const_cuda_of(device);

    for (struct cuda_device *dev = next_lane(cuda, NULL); dev != NULL; dev = next_lane(cuda, dev)) {
        cuda_device_rest(dev);
    }
}

static void cuda_free(struct device *device)
{
    struct cuda *cuda = cuda_of(device);

    for (struct cuda_device *dev = next_lane(cuda, NULL); dev != NULL; dev = next_lane(cuda, dev)) {
        cuda_device_close(dev);
    }
    free(cuda->lanes);
    free(cuda);
}

static const struct device_ops cuda_ops = {.memory = TCK_CUDA,
                                           .place = cuda_place_record,
                                           .prepare = cuda_prepare,
                                           .relocate = cuda_relocate,
                                           .pin = cuda_pin,
                                           .unpin = cuda_unpin,
                                           .mark = cuda_mark,
                                           .awaits_eager = cuda_awaits_eager,
                                           .set_stream = cuda_set_stream,
                                           .can_hold = cuda_can_hold,
                                           .hold = cuda_hold,
                                           .save_eager = cuda_save_eager,
                                           .save = cuda_save,
                                           .await_digests = cuda_await_digests,
                                           .root = cuda_root,
                                           .finish = cuda_finish,
                                           .restore_prepare = cuda_restore_prepare,
                                           .restore = cuda_restore,
                                           .restore_over = cuda_restore_over,
                                           .write = cuda_write,
                                           .rest = cuda_rest,
                                           .free = cuda_free};

tck_status_t cuda_new_with(const struct cuda_calls *calls, struct device **out, struct error *err)
{
    struct cuda *cuda = calloc(1, sizeof(*cuda));
    tck_status_t status;

    if (cuda == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the CUDA devices");
    }
    cuda->base.ops = &cuda_ops;
    cuda->calls = calls;
    status = count_devices(cuda, err);
    if (status != TCK_OK) {
        free(cuda);
        return status;
    }
    *out = &cuda->base;
    return TCK_OK;
}

tck_status_t cuda_new(const char *module, struct device **out, struct error *err)
{
    const struct cuda_calls *calls = NULL;
    char path[PATH_MAX];
    tck_status_t status = module_path(module, path, err);

    if (status == TCK_OK) {
        status = load(path, &calls, err);
    }
    return status == TCK_OK ? cuda_new_with(calls, out, err) : status;
}
