/* SPDX-License-Identifier: Apache-2.0
 * Descriptors that the kernel does not know, and the system calls on them: memory files, sockets, processes. Calls on
 * the kernel's descriptors pass through. */
#include "sim.h"

#include "tiers/memory_pages.h"
#include "wrapped.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIRST_FD (1 << 22) /* above all of the kernel's */
#define PAGE     4096

static struct object **table;
static size_t table_count, table_first_free;

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

struct object *object_new(enum object_kind kind)
{
    struct object *object = calloc(1, sizeof(*object));
    if (object == NULL) {
        abort();
    }
    object->kind = kind;
    object->end = &object->first;
    return object;
}

void object_ref(struct object *object)
{
    object->refs++;
}

/* A mapping begins this many bytes after the word that identifies its owner. */
#define HEAD_BYTES 64

static void memory_drop(struct object *object)
{
    free(object->base != NULL ? object->base - HEAD_BYTES : NULL);
}

static void memory_resize(struct object *object, uint64_t bytes)
{
    uint8_t *block = calloc(1, HEAD_BYTES + bytes);
    if (block == NULL) {
        abort();
    }
    memcpy(block, &object, sizeof(object));
    if (object->base != NULL) {
        memcpy(block + HEAD_BYTES, object->base, object->bytes < bytes ? object->bytes : bytes);
    }
    memory_drop(object);
    object->base = block + HEAD_BYTES;
    object->bytes = bytes;
}

void object_unref(struct object *object)
{
    if (--object->refs > 0) {
        return;
    }
    if (object->kind == OBJECT_MEMORY) {
        pressure_forget(object->base, object->bytes);
        memory_drop(object);
        free(object);
    } else if (object->kind == OBJECT_SOCKET) {
        ipc_hang_up(object); /* an event may still point to it */
    } else if (object->kind == OBJECT_FILE) {
        file_closed(object->file);
        free(object);
    }
}

int object_fd(struct object *object)
{
    size_t i = table_first_free;
    while (i < table_count && table[i] != NULL) {
        i++;
    }
    if (i == table_count) {
        table_count = table_count ? 2 * table_count : 1024;
        table = realloc(table, table_count * sizeof(*table));
        if (table == NULL) {
            abort();
        }
        memset(table + i, 0, (table_count - i) * sizeof(*table));
    }
    table[i] = object;
    table_first_free = i + 1;
    object_ref(object);
    return FIRST_FD + (int)i;
}

struct object *object_of(int fd)
{
    return fd >= FIRST_FD && (size_t)(fd - FIRST_FD) < table_count ? table[fd - FIRST_FD] : NULL;
}

void fd_close(int fd)
{
    struct object *object = object_of(fd);
    if (object != NULL) {
        size_t i = (size_t)(fd - FIRST_FD);
        table[i] = NULL;
        table_first_free = i < table_first_free ? i : table_first_free;
        object_unref(object);
    }
}

void object_replace(int fd, struct object *object)
{
    if (object_of(fd) != NULL) {
        object_unref(object_of(fd));
        table[fd - FIRST_FD] = object;
    }
}

/* ---- system calls ------------------------------------------------------------------------------------------------ */

int __wrap_close(int fd)
{
    if (object_of(fd) == NULL) {
        return fd >= FIRST_FD ? 0 : __real_close(fd);
    }
    fd_close(fd);
    return 0;
}

int __wrap_memfd_create(const char *name, unsigned flags)
{
    (void)name;
    (void)flags;
    return object_fd(object_new(OBJECT_MEMORY));
}

int __wrap_ftruncate(int fd, off_t bytes)
{
    struct object *object = object_of(fd);
    if (object == NULL) {
        return __real_ftruncate(fd, bytes);
    }
    memory_resize(object, (uint64_t)bytes);
    return 0;
}

ssize_t __wrap_write(int fd, const void *data, size_t len)
{
    struct object *object = object_of(fd);
    if (object == NULL) {
        return __real_write(fd, data, len);
    }
    if (object->kind == OBJECT_FILE) {
        return file_write(fd, data, len);
    }
    if (object->kind == OBJECT_OTHER) {
        return (ssize_t)len; /* /dev/null */
    }
    uint64_t at = object->bytes;
    memory_resize(object, at + len);
    memcpy(object->base + at, data, len);
    return (ssize_t)len;
}

int __wrap_fstat(int fd, struct stat *out)
{
    struct object *object = object_of(fd);
    if (object == NULL) {
        return __real_fstat(fd, out);
    }
    if (object->kind == OBJECT_FILE) {
        file_stat(object->file, out);
        return 0;
    }
    *out = (struct stat){.st_size = (off_t)object->bytes};
    return 0;
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    struct object *object = object_of(fd);
    if (object == NULL) {
        return __real_mmap(at, bytes, protection, flags, fd, offset);
    }
    object_ref(object);
    return object->base + offset;
}

/* The code under test maps only its own memory files, from their beginning. */
int __wrap_munmap(void *at, size_t bytes)
{
    struct object *object;
    (void)bytes;
    memcpy(&object, (uint8_t *)at - HEAD_BYTES, sizeof(object));
    object_unref(object);
    return 0;
}

int __wrap_fcntl(int fd, int what, ...)
{
    va_list args;
    va_start(args, what);
    struct object *object = object_of(fd);
    /* NOLINTNEXTLINE(bugprone-narrowing): as the kernel takes it */
    void *argument = va_arg(args, void *);
    va_end(args);
    if (object == NULL) {
        return __real_fcntl(fd, what, argument);
    }
    return what == F_DUPFD_CLOEXEC ? object_fd(object) : 0;
}

int __wrap_shutdown(int fd, int how)
{
    (void)how;
    struct object *object = object_of(fd);
    if (object != NULL && object->kind == OBJECT_SOCKET) {
        ipc_hang_up(object);
    }
    return 0;
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    struct object *object = count == 1 ? object_of(fds[0].fd) : NULL;
    if (object == NULL) {
        return __real_poll(fds, count, timeout_ms);
    }
    fds[0].revents = object->first != NULL || object->hung_up ? POLLIN : 0;
    return fds[0].revents ? 1 : 0;
}

/* ---- memory_pages.h ---------------------------------------------------------------------------------------------- */

tck_status_t page_source_new(const char *mount, uint32_t threads, struct progress *progress, struct page_source **out,
                             struct error *err)
{
    (void)mount;
    (void)threads;
    (void)progress;
    (void)err;
    *out = NULL;
    return TCK_OK;
}

void page_source_free(struct page_source *source)
{
    (void)source;
}

static struct pages pages_of(int fd, const char *way)
{
    struct object *object = object_of(fd);
    return (struct pages){
        .fd = fd, .base = object->base, .bytes = object->bytes, .page_bytes = PAGE, .sealed = true, .way = way};
}

tck_status_t pages_make(const struct page_source *source, const struct pages_wish *wish, struct pages *out,
                        struct error *err)
{
    (void)source;
    (void)err;
    struct object *object = object_new(OBJECT_MEMORY);
    memory_resize(object, wish->bytes);
    *out = pages_of(object_fd(object), "simulated");
    pressure_untouched(object->base + wish->touched, wish->bytes - wish->touched);
    return TCK_OK;
}

tck_status_t pages_map(int fd, struct pages *out, struct error *err)
{
    (void)err;
    *out = pages_of(fd, "parked file");
    return TCK_OK;
}

void pages_free(struct pages *pages)
{
    if (pages->fd >= 0) {
        fd_close(pages->fd);
    }
    *pages = (struct pages){.fd = -1};
}
