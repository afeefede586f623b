/* SPDX-License-Identifier: Apache-2.0
 * Memory for all code of the process, in place of the C library's: a list of free blocks for each size, out of one
 * area. Agents allocate so much in so little time that splitting and joining blocks would be a quarter of a schedule.
 * Nothing is returned to the kernel, as a schedule's process ends soon. A sanitizer brings its own. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include "wrapped.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define AREA_BYTES (UINT64_C(1) << 35) /* of addresses; the kernel adds memory where it is used */
#define CLASSES    160                 /* sizes: multiples of 16 up to 128, from there on four to a doubling */
#define LINE_BYTES 64                  /* of a cache */
#define LARGE      4096
#define EXPORTED   __attribute__((visibility("default")))

struct head {
    uint64_t class;
    uint64_t offset; /* of what the caller has, from the beginning of the block */
};

struct block {
    struct block *next;
};

static struct block *spare[CLASSES];
static uint8_t *unused, *area_end;

static uint32_t class_of(size_t bytes, size_t *size_out)
{
    if (bytes <= 128) {
        uint32_t class = bytes == 0 ? 0 : (uint32_t)((bytes - 1) / 16);
        *size_out = ((size_t) class + 1) * 16;
        return class;
    }
    uint32_t log = 63 - (uint32_t)__builtin_clzll(bytes - 1);
    uint32_t quarter = (uint32_t)((bytes - 1) >> (log - 2)) & 3;
    *size_out = ((size_t)quarter + 5) << (log - 2);
    return 8 + 4 * (log - 7) + quarter;
}

/* Memory that was never used is zero. NULL: there is none. */
static uint8_t *from_area(size_t size)
{
    if (unused == NULL) {
        void *area =
            __real_mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        unused = area == MAP_FAILED ? NULL : area;
        area_end = unused != NULL ? unused + AREA_BYTES : NULL;
    }
    if (unused == NULL || size > (size_t)(area_end - unused)) {
        errno = ENOMEM;
        return NULL;
    }
    uint8_t *block = unused;
    unused += size;
    return block;
}

static void *allocate(size_t bytes, size_t alignment, bool zero)
{
    alignment = bytes >= LARGE && alignment < LINE_BYTES ? LINE_BYTES : alignment; /* images and pages of headers */
    size_t size, wanted = bytes + sizeof(struct head) + (alignment > 16 ? alignment : 0);
    if (wanted < bytes || wanted > AREA_BYTES) {
        errno = ENOMEM;
        return NULL;
    }
    uint32_t class = class_of(wanted, &size);
    struct block *old = spare[class];
    uint8_t *block = (uint8_t *)old;
    if (old != NULL) {
        spare[class] = old->next;
    } else {
        block = from_area(size);
    }
    if (block == NULL) {
        return NULL;
    }
    uintptr_t at = (uintptr_t)block + sizeof(struct head), rest = alignment > 16 ? at % alignment : 0;
    uint8_t *out = block + sizeof(struct head) + (rest ? alignment - rest : 0);
    ((struct head *)(void *)out)[-1] = (struct head){class, (uint64_t)(out - block)};
    if (zero && old != NULL) {
        memset(out, 0, bytes);
    }
    return out;
}

EXPORTED void *malloc(size_t size)
{
    return allocate(size, 16, false);
}

EXPORTED void *calloc(size_t nmemb, size_t size)
{
    size_t all;
    if (__builtin_mul_overflow(nmemb, size, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    return allocate(all, 16, true);
}

EXPORTED void free(void *ptr)
{
    if (ptr != NULL) {
        struct head head = ((struct head *)ptr)[-1];
        struct block *block = (struct block *)(void *)((uint8_t *)ptr - head.offset);
        block->next = spare[head.class];
        spare[head.class] = block;
    }
}

static size_t size_of(uint64_t class)
{
    return class < 8 ? (size_t)(class + 1) * 16 : (size_t)((class - 8) % 4 + 5) << ((class - 8) / 4 + 5);
}

EXPORTED size_t malloc_usable_size(void *ptr)
{
    struct head head = ptr != NULL ? ((struct head *)ptr)[-1] : (struct head){0};
    return ptr != NULL ? size_of(head.class) - head.offset : 0;
}

EXPORTED void *realloc(void *ptr, size_t size)
{
    size_t has = malloc_usable_size(ptr);
    if (ptr != NULL && size <= has) {
        return ptr;
    }
    void *out = allocate(size, 16, false);
    if (out != NULL && ptr != NULL) {
        memcpy(out, ptr, has);
        free(ptr);
    }
    return out;
}

EXPORTED void *aligned_alloc(size_t alignment, size_t size)
{
    return allocate(size, alignment, false);
}

EXPORTED void *memalign(size_t alignment, size_t size)
{
    return allocate(size, alignment, false);
}

EXPORTED int posix_memalign(void **memptr, size_t alignment, size_t size)
{
    void *at = allocate(size, alignment, false);
    *memptr = at != NULL ? at : *memptr;
    return at != NULL ? 0 : ENOMEM;
}

#endif
