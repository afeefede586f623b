/* SPDX-License-Identifier: Apache-2.0
 * Memory for all code of the process, in place of the C library's: a list of free blocks for each size, carved out of
 * one area. Agents allocate so often that splitting and joining blocks would take a quarter of the time of a schedule.
 * Nothing is returned to the kernel, because a schedule's process ends soon. All owners share the free blocks, so
 * memory that each of a thousand agents needs for a moment is needed once. A sanitizer replaces these functions with
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
#define CLASSES    160                 /* sizes: multiples of 16 up to 128, from there on four to a doubling */
#define LINE_BYTES 64                  /* of a cache */
#define HUGE_PAGE  (UINT64_C(1) << 21)
#define LARGE      4096
#define EXPORTED   __attribute__((visibility("default")))

struct head {
    uint16_t class, owner;
    uint32_t offset : 31; /* of the caller's memory from the beginning of the block: up to an alignment of 1 GiB */
    uint32_t listed : 1;  /* a struct place precedes it */
    uint64_t bytes;       /* as requested */
};

_Static_assert(sizeof(struct head) == 16, "the caller's memory is as well aligned as malloc's");

/* A block's place in the list of all blocks of its owner, which are dropped together. */
struct place {
    struct head *before, *after;
};

struct block {
    struct block *next;
};

static struct block *spare[CLASSES];
static uint8_t *area, *area_end;
static struct head *lists[OWNERS];
static bool droppable;

static struct place *place_of(struct head *head)
{
    return (struct place *)(void *)head - 1;
}

static void list(struct head *head)
{
    struct head *first = lists[head->owner];
    *place_of(head) = (struct place){NULL, first};
    if (first != NULL) {
        place_of(first)->before = head;
    }
    lists[head->owner] = head;
}

static void unlist(struct head *head)
{
    struct place place = *place_of(head);
    if (place.after != NULL) {
        place_of(place.after)->before = place.before;
    }
    if (place.before != NULL) {
        place_of(place.before)->after = place.after;
    } else {
        lists[head->owner] = place.after;
    }
}

static void own(struct head *head, uint32_t owner, uint64_t bytes)
{
    struct heap_use *use = &uses[owner];
    head->owner = (uint16_t)owner;
    head->bytes = bytes;
    use->now += bytes;
    use->peak = use->now > use->peak ? use->now : use->peak;
    if (head->listed) {
        list(head);
    }
}

static void disown(struct head *head)
{
    uses[head->owner].now -= head->bytes;
    if (head->listed) {
        unlist(head);
    }
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
        if (area != NULL) {
            (void)madvise(area, AREA_BYTES, MADV_HUGEPAGE); /* a schedule needs one or two, or hundreds of small ones */
        }
    }
    if (area == NULL || size > (size_t)(area_end - area)) {
        errno = ENOMEM;
        return NULL;
    }
    uint8_t *at = area;
    area += size;
    return at;
}

void heap_begin(void)
{
    uintptr_t into = (uintptr_t)area % HUGE_PAGE;
    area += area != NULL && into > 0 ? HUGE_PAGE - into : 0;
}

void heap_keep_lists(void)
{
    droppable = true;
}

void heap_drop(uint32_t owner)
{
    for (struct head *head = lists[owner]; head != NULL; head = lists[owner]) {
        free(head + 1);
    }
}

static void *allocate(size_t bytes, size_t alignment, bool zero)
{
    alignment = bytes >= LARGE && alignment < LINE_BYTES ? LINE_BYTES : alignment; /* images and pages of headers */
    size_t before = sizeof(struct head) + (droppable ? sizeof(struct place) : 0);
    size_t size, wanted = bytes + before + (alignment > 16 ? alignment : 0);
    if (wanted < bytes || wanted > AREA_BYTES) {
        errno = ENOMEM;
        return NULL;
    }
    uint32_t class = class_of(wanted, &size);
    struct block *old = spare[class];
    uint8_t *block = old != NULL ? (uint8_t *)old : from_area(size);
    if (block == NULL) {
        return NULL;
    }
    spare[class] = old != NULL ? old->next : NULL;
    uintptr_t at = (uintptr_t)block + before, rest = alignment > 16 ? at % alignment : 0;
    uint8_t *out = block + before + (rest ? alignment - rest : 0);
    struct head *head = (struct head *)(void *)out - 1;
    *head =
        (struct head){.class = (uint16_t) class, .offset = (uint32_t)(out - block) & INT32_MAX, .listed = droppable};
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
        struct head *head = (struct head *)ptr - 1;
        struct block *block = (struct block *)(void *)((uint8_t *)ptr - head->offset);
        uint16_t class = head->class;
        disown(head);
        block->next = spare[class];
        spare[class] = block;
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

void heap_begin(void)
{
}

void heap_keep_lists(void)
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
