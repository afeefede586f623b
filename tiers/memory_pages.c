/* SPDX-License-Identifier: Apache-2.0
 * Makes files of huge pages by the first method that works here. The methods are tried at start rather than guessed
 * from system settings, which differ between kernels and do not show what a container may do. */
#include "tiers/memory_pages.h"

#include "base/log.h"
#include "base/page.h"
#include "tiers/memory_limits.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <linux/mount.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define FILE_MODE 0600

struct page_source {
    uint32_t threads;
    struct progress *progress;
    const struct way *huge; /* NULL: none worked */
    int mount_fd;           /* the configured mount; -1: none */
};

/* One method of getting a file. make returns a descriptor, or -1 with errno. */
struct way {
    const char *name;
    int (*make)(const struct page_source *source);
};

static int make_memfd(const struct page_source *source)
{
    (void)source;
    return memfd_create("tierckpt", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

static int make_hugetlb(const struct page_source *source)
{
    (void)source;
    return memfd_create("tierckpt", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | MFD_HUGE_2MB);
}

static int make_on_mount(const struct page_source *source)
{
    return openat(source->mount_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, FILE_MODE);
}

/* Mounts a tmpfs, attached to no directory. Needs CAP_SYS_ADMIN. No size limit: the memory's cap is checked before. */
static int private_mount(void)
{
    int mount_fd = -1;
    int context = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
    if (context < 0) {
        return -1;
    }
    if (syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "huge", "advise", 0) == 0 &&
        syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "size", "0", 0) == 0 &&
        syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "mode", "0700", 0) == 0 &&
        syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0) {
        mount_fd = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    }
    close(context);
    return mount_fd;
}

/* The mount needs no mount point, its files have no names, and it disappears with its last file. */
static int make_on_private(const struct page_source *source)
{
    (void)source;
    int mount_fd = private_mount();
    if (mount_fd < 0) {
        return -1;
    }
    int fd = openat(mount_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, FILE_MODE);
    int saved_errno = errno;
    close(mount_fd);
    errno = saved_errno;
    return fd;
}

static const struct way plain = {"memfd", make_memfd};
static const struct way hugetlb = {"hugetlb memfd", make_hugetlb};
static const struct way on_mount = {"configured tmpfs mount", make_on_mount};
/* In order of preference: files on a tmpfs mount cannot be sealed. */
static const struct way huge_ways[] = {
    {"memfd", make_memfd},
    {"private tmpfs mount", make_on_private},
};

/* ---- one file ------------------------------------------------------------------------------------------------ */

/* Shared mappings of huge pages must be aligned to one; the kernel does so by itself only if shmem_enabled allows them.
 */
static uint8_t *map_aligned(int fd, uint64_t bytes)
{
    uint64_t room = bytes + HUGE_PAGE_BYTES;
    uint8_t *from = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (from == MAP_FAILED) {
        return NULL;
    }
    uint64_t before = (HUGE_PAGE_BYTES - (uintptr_t)from % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    uint8_t *base = mmap(from + before, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (base == MAP_FAILED) {
        int saved_errno = errno;
        munmap(from, room);
        errno = saved_errno;
        return NULL;
    }
    if (before > 0) {
        munmap(from, before);
    }
    uint64_t used = page_end(bytes, (size_t)sysconf(_SC_PAGESIZE));
    munmap(base + used, room - before - used);
    return base;
}

/* Gives a new file its size, maps it and touches its first part. Takes over fd in any case. */
static tck_status_t fill(const struct page_source *source, int fd, const struct pages_wish *wish, struct pages *out,
                         struct error *err)
{
    struct pages pages = {.fd = fd, .bytes = wish->bytes, .near = wish->near};
    tck_status_t status = TCK_OK;
    if (ftruncate(fd, (off_t)wish->bytes) != 0) {
        status = error_set(err, status_of_errno(errno), "set its size to %" PRIu64 " bytes: %m", wish->bytes);
        goto free_pages;
    }
    pages.sealed = fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
    pages.base = map_aligned(fd, wish->bytes);
    if (pages.base == NULL) {
        status = error_set(err, status_of_errno(errno), "map %" PRIu64 " bytes: %m", wish->bytes);
        goto free_pages;
    }
    const struct page_range range = {.fd = fd, .base = pages.base, .bytes = wish->touched, .near = &wish->near};
    status = pages_touch(&range, source->threads, source->progress, err);
    if (status != TCK_OK) {
        goto free_pages;
    }
    pages.page_bytes = pages_size_at(pages.base);
    *out = pages;
    return TCK_OK;
free_pages:
    pages_free(&pages);
    return status;
}

static tck_status_t make_by(const struct page_source *source, const struct way *way, const struct pages_wish *wish,
                            struct pages *out, struct error *err)
{
    tck_status_t status;
    int fd = way->make(source);
    if (fd < 0) {
        status = error_set(err, status_of_errno(errno), "create it: %m");
    } else {
        status = fill(source, fd, wish, out, err);
    }
    if (status != TCK_OK) {
        return error_prefix(err, "shared memory file by %s", way->name);
    }
    out->way = way->name;
    return TCK_OK;
}

tck_status_t pages_make(const struct page_source *source, const struct pages_wish *wish, struct pages *out,
                        struct error *err)
{
    struct error tried = {0};
    if (wish->huge && memory_hugetlb_free() >= wish->bytes) { /* these are not part of the memory available to all */
        struct pages_wish whole = *wish;
        whole.touched = wish->bytes;
        if (make_by(source, &hugetlb, &whole, out, &tried) == TCK_OK) {
            return TCK_OK;
        }
        log_debug("%s", tried.text);
    }
    tck_status_t status = memory_can_spare(wish->touched, err);
    if (status != TCK_OK) {
        return status;
    }
    if (wish->huge && source->huge != NULL) {
        if (make_by(source, source->huge, wish, out, &tried) == TCK_OK) {
            return TCK_OK;
        }
        log_warn("%s; a file of normal pages is used instead", tried.text);
    }
    return make_by(source, &plain, wish, out, err);
}

tck_status_t pages_map(int fd, struct pages *out, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return error_set(err, status_of_errno(errno), "fstat: %m");
    }
    if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size % PAGE_BYTES != 0) {
        return error_set(err, TCK_ERR_CORRUPT, "not a file of pages: mode %o, %" PRId64 " bytes", st.st_mode,
                         (int64_t)st.st_size);
    }
    uint8_t *base = map_aligned(fd, (uint64_t)st.st_size);
    if (base == NULL) {
        return error_set(err, status_of_errno(errno), "map %" PRId64 " bytes: %m", (int64_t)st.st_size);
    }
    *out = (struct pages){.fd = fd, .base = base, .bytes = (uint64_t)st.st_size, .way = "parked file"};
    int seals = fcntl(fd, F_GET_SEALS);
    out->sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
    (void)*(volatile uint8_t *)base; /* the kernel reports the size of mapped pages only */
    out->page_bytes = pages_size_at(base);
    return TCK_OK;
}

void pages_free(struct pages *pages)
{
    if (pages->base != NULL) {
        munmap(pages->base, pages->bytes);
    }
    if (pages->fd >= 0) {
        close(pages->fd);
    }
    *pages = (struct pages){.fd = -1};
}

/* ---- giving pages back --------------------------------------------------------------------------------------- */

bool pages_removable(const struct pages *pages)
{
    struct statfs of;
    return fstatfs(pages->fd, &of) == 0 && of.f_type != HUGETLBFS_MAGIC;
}

/* By madvise rather than fallocate: where UCX keeps registrations of memory for later, it takes notice of that, and
 * uses none for pages that were replaced. */
tck_status_t pages_remove(const struct pages *pages, uint64_t offset, uint64_t bytes, struct error *err)
{
    if (madvise(pages->base + offset, bytes, MADV_REMOVE) != 0) {
        return error_set(err, status_of_errno(errno), "give back %" PRIu64 " bytes of shared memory: %m", bytes);
    }
    return TCK_OK;
}

tck_status_t pages_refill(const struct pages *pages, uint64_t offset, uint64_t bytes, uint32_t threads,
                          struct error *err)
{
    const struct page_range range = {
        .fd = pages->fd, .offset = offset, .base = pages->base + offset, .bytes = bytes, .near = &pages->near};
    tck_status_t status = memory_can_spare(bytes, err);
    return status == TCK_OK ? pages_touch(&range, threads, NULL, err) : status;
}

bool pages_any(const struct pages *pages, uint64_t offset, uint64_t bytes)
{
    off_t at = lseek(pages->fd, (off_t)offset, SEEK_DATA);
    return at >= 0 && (uint64_t)at < offset + bytes;
}

bool pages_all(const struct pages *pages, uint64_t offset, uint64_t bytes)
{
    off_t at = lseek(pages->fd, (off_t)offset, SEEK_HOLE);
    return at < 0 || (uint64_t)at >= offset + bytes;
}

/* ---- the source ---------------------------------------------------------------------------------------------- */

static bool gives_huge(const struct page_source *source, const struct way *way)
{
    struct pages trial = {.fd = -1};
    struct error tried = {0};
    const struct pages_wish one = {.bytes = HUGE_PAGE_BYTES, .touched = HUGE_PAGE_BYTES};
    if (make_by(source, way, &one, &trial, &tried) != TCK_OK) {
        log_debug("%s", tried.text);
        return false;
    }
    bool huge = trial.page_bytes == HUGE_PAGE_BYTES;
    pages_free(&trial);
    return huge;
}

tck_status_t page_source_new(const char *mount, uint32_t threads, struct progress *progress, struct page_source **out,
                             struct error *err)
{
    struct page_source *source = calloc(1, sizeof(*source));
    if (source == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a page source");
    }
    source->threads = threads;
    source->progress = progress;
    source->mount_fd = -1;
    if (mount[0] != '\0') { /* configured, so it takes precedence */
        source->mount_fd = open(mount, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (source->mount_fd < 0) {
            tck_status_t status = error_set(err, TCK_ERR_CONFIG, "hugetlb_mount %s: %m", mount);
            page_source_free(source);
            return status;
        }
        source->huge = gives_huge(source, &on_mount) ? &on_mount : NULL;
    }
    for (size_t i = 0; source->huge == NULL && i < sizeof(huge_ways) / sizeof(huge_ways[0]); i++) {
        source->huge = gives_huge(source, &huge_ways[i]) ? &huge_ways[i] : NULL;
    }
    log_info("huge pages for segments: %s", source->huge == NULL ? "none available" : source->huge->name);
    *out = source;
    return TCK_OK;
}

void page_source_free(struct page_source *source)
{
    if (source == NULL) {
        return;
    }
    if (source->mount_fd >= 0) {
        close(source->mount_fd);
    }
    free(source);
}
