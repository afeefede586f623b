/* SPDX-License-Identifier: Apache-2.0
 * Memory for all code of the process, in place of the C library's: a list of free blocks for each size, carved out of
 * one area. Agents allocate so often that splitting and joining blocks would take a quarter of the time of a schedule.
 * Nothing is returned to the kernel, because a schedule's process ends soon. A sanitizer replaces these functions with
 * its own, and then there is no accounting per owner. */
#undef malloc /* CMakeLists.txt redirects the other files' calls to the functions below, which charge no owner */
#undef calloc
#undef realloc

#include "heap.h"

#include "wrapped.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define OWNERS 65536

static struct heap_use uses[OWNERS];
static uint32_t charged, owners = 1;

/* ---- who has it -------------------------------------------------------------------------------------------------- */

uint32_t heap_owner_new(void)
{
    return owners < OWNERS ? owners++ : 0;
}

uint32_t heap_charge(uint32_t owner)
{
    uint32_t before = charged;
    charged = owner;
    return before;
}

struct heap_use heap_use(uint32_t owner)
{
    return uses[owner];
}

void heap_peaks_begin(void)
{
    for (uint32_t i = 0; i < owners; i++) {
        uses[i].peak = uses[i].now;
    }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#define AREA_BYTES (UINT64_C(1) << 37) /* of addresses; the kernel adds memory where it is used */
#define ALL_BYTES  (UINT64_C(1) << 35) /* the limit if memory is not divided */
#define PART_BYTES UINT64_C(32768)     /* of a home's chunk, at least */
#define PAGE       4096
#define CLASSES    160 /* sizes: multiples of 16 up to 128, from there on four to a doubling */
#define LINE_BYTES 64  /* of a cache */
#define LARGE      4096
#define EXPORTED   __attribute__((visibility("default")))

struct head {
    uint16_t class, owner, home;
    uint16_t offset; /* of the caller's memory from the beginning of the block */
    uint64_t bytes;  /* as requested */
};

struct block {
    struct block *next;
};

struct chunk {
    struct chunk *next;
    uint64_t bytes;
};

/* A pool of blocks: one common pool, or one for each owner, so that all memory of an owner can be dropped. */
struct home {
    struct block *spare[CLASSES];
    uint8_t *unused, *end;
    struct chunk *chunks;
};
static struct home common, *homes[OWNERS];
static uint8_t *area, *area_end;
static bool apart;

static void own(struct head *head, uint32_t owner, uint64_t bytes)
{
    struct heap_use *use = &uses[owner];
    head->owner = (uint16_t)owner;
    head->bytes = bytes;
    use->now += bytes;
    use->peak = use->now > use->peak ? use->now : use->peak;
}

static void disown(struct head *head)
{
    uses[head->owner].now -= head->bytes;
}

void heap_give(void *at, uint32_t owner)
{
    if (at != NULL) {
        struct head *head = (struct head *)at - 1;
        disown(head);
        own(head, owner, head->bytes);
    }
}

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

/* Memory that was never used is zero. NULL if the area is exhausted. */
static uint8_t *from_area(size_t size)
{
    if (area == NULL) {
        void *all =
            __real_mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        area = all == MAP_FAILED ? NULL : all;
        area_end = area != NULL ? area + AREA_BYTES : NULL;
    }
    if (area == NULL || size > (size_t)(area_end - area)) {
        errno = ENOMEM;
        return NULL;
    }
    uint8_t *at = area;
    area += size;
    return at;
}

static struct home *home_of(uint32_t owner)
{
    if (owner == 0 || !apart) {
        return &common;
    }
    if (homes[owner] == NULL) {
        homes[owner] = (struct home *)(void *)from_area((sizeof(struct home) + PAGE - 1) / PAGE * PAGE);
    }
    return homes[owner];
}

static uint64_t chunk_bytes(const struct home *home, size_t size)
{
    uint64_t least = home != &common ? PART_BYTES : apart ? 32 * PART_BYTES : ALL_BYTES;
    size += sizeof(struct chunk);
    return size < least ? least : (size + PAGE - 1) / PAGE * PAGE;
}

/* The rest of the previous chunk stays unused. */
static uint8_t *from_home(struct home *home, size_t size)
{
    if (size > (size_t)(home->end - home->unused)) {
        uint64_t bytes = chunk_bytes(home, size);
        struct chunk *chunk = (struct chunk *)(void *)from_area(bytes);
        if (chunk == NULL) {
            return NULL;
        }
        *chunk = (struct chunk){home->chunks, bytes};
        home->chunks = chunk;
        if (bytes > PART_BYTES && home != &common) {
            return (uint8_t *)(chunk + 1); /* for this block alone */
        }
        home->unused = (uint8_t *)(chunk + 1);
        home->end = (uint8_t *)chunk + bytes;
    }
    uint8_t *block = home->unused;
    home->unused += size;
    return block;
}

void heap_divide(void)
{
    apart = true;
}

void heap_drop(uint32_t owner)
{
    struct home *home = homes[owner];
    for (struct chunk *chunk = home != NULL ? home->chunks : NULL, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        madvise(chunk, chunk->bytes, MADV_DONTNEED); /* failure is harmless: the pages are merely kept */
    }
    homes[owner] = NULL;
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
    struct home *home = home_of(charged);
    struct block *old = home != NULL ? home->spare[class] : NULL;
    uint8_t *block = (uint8_t *)old;
    if (old != NULL) {
        home->spare[class] = old->next;
    } else if (home != NULL) {
        block = from_home(home, size);
    }
    if (block == NULL) {
        return NULL;
    }
    uintptr_t at = (uintptr_t)block + sizeof(struct head), rest = alignment > 16 ? at % alignment : 0;
    uint8_t *out = block + sizeof(struct head) + (rest ? alignment - rest : 0);
    struct head *head = (struct head *)(void *)out - 1;
    uint32_t at_home = home == &common ? 0 : charged;
    *head = (struct head){.class = (uint16_t) class, .home = (uint16_t)at_home, .offset = (uint16_t)(out - block)};
    own(head, charged, bytes);
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
        disown(&head);
        struct home *home = home_of(head.home);
        block->next = home->spare[head.class];
        home->spare[head.class] = block;
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

static void *reallocate(void *ptr, size_t size)
{
    size_t has = malloc_usable_size(ptr);
    if (ptr != NULL && size <= has) {
        struct head *head = (struct head *)ptr - 1;
        disown(head);
        own(head, head->owner, size);
        return ptr;
    }
    void *out = allocate(size, 16, false);
    if (out != NULL && ptr != NULL) {
        memcpy(out, ptr, has);
        free(ptr);
    }
    return out;
}

EXPORTED void *realloc(void *ptr, size_t size)
{
    return reallocate(ptr, size);
}

/* Does not call the functions above, because compilers assume that malloc and its relatives read no variables. */
void *world_malloc(size_t bytes)
{
    uint32_t before = heap_charge(0);
    void *at = allocate(bytes, 16, false);
    (void)heap_charge(before);
    return at;
}

void *world_calloc(size_t count, size_t bytes)
{
    uint32_t before = heap_charge(0);
    size_t all;
    void *at = __builtin_mul_overflow(count, bytes, &all) ? NULL : allocate(all, 16, true);
    (void)heap_charge(before);
    return at;
}

void *world_realloc(void *old, size_t bytes)
{
    uint32_t before = heap_charge(0);
    void *at = reallocate(old, bytes);
    (void)heap_charge(before);
    return at;
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

#else

void heap_give(void *at, uint32_t owner)
{
    (void)at, (void)owner;
}

void heap_divide(void)
{
}

void heap_drop(uint32_t owner)
{
    (void)owner;
}

void *world_malloc(size_t bytes)
{
    return malloc(bytes);
}

void *world_calloc(size_t count, size_t bytes)
{
    return calloc(count, bytes);
}

void *world_realloc(void *old, size_t bytes)
{
    return realloc(old, bytes);
}

#endif
