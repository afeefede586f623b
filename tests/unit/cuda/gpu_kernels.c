/* SPDX-License-Identifier: Apache-2.0
 * Compares the kernels compiled by nvcc, on a device, with their bodies on the host: gpu_kernels MODULE. A plain
 * program, as compute-sanitizer requires. Skipped without a device. */
#include "cuda/calls.h"
#include "kernels_on_host.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SKIPPED 77
#define PIECES  12000 /* more than all warps of a launch: each copies several */
#define ROOM    (64u << 20)

static const struct cuda_calls *calls;
static void *stream;

static void need(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "FAILED: %s\n", what);
        exit(1);
    }
}

static void done(int rc)
{
    need(rc == 0, rc == 0 ? "" : calls->error_text(rc));
}

static uint32_t chance(void)
{
    static uint32_t x = 2463534242u;

    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return x;
}

static uint8_t *new_bytes(size_t bytes, bool random)
{
    uint8_t *memory = calloc(1, bytes + 1);

    need(memory != NULL, "no memory");
    for (size_t i = 0; random && i < bytes; i++) {
        memory[i] = (uint8_t)chance();
    }
    return memory;
}

static void *on_device(size_t bytes, const void *content)
{
    void *memory = NULL;

    done(calls->device_alloc(&memory, bytes + 1));
    done(content == NULL ? calls->zero(memory, bytes, stream) : calls->copy(memory, content, bytes, stream));
    done(calls->stream_sync(stream));
    return memory;
}

static void back(void *to, const void *from, size_t bytes)
{
    done(calls->copy(to, from, bytes, stream));
    done(calls->stream_sync(stream));
}

/* Of all lengths, most small, at any address and offset; apart from each other in the image by up to 20 bytes. */
static uint64_t make_pieces(struct gather_piece *pieces, uint64_t base)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < PIECES; i++) {
        uint64_t bytes = i % 50 == 0 ? KERNELS_PIECE_BYTES - i % 7 : chance() % 4000;

        bytes = at % DIGEST_CHUNK + bytes > DIGEST_CHUNK ? DIGEST_CHUNK - at % DIGEST_CHUNK : bytes;
        pieces[i] = (struct gather_piece){base + at + i % 17, at, bytes};
        at += bytes + 17 + chance() % 21; /* so that no two overlap, moved as they are */
    }
    need(at + 4096 < ROOM, "the pieces fit");
    return at + 100;
}

static void move(struct gather_piece *pieces, uint64_t from, uint64_t to)
{
    for (uint32_t i = 0; i < PIECES; i++) {
        pieces[i].addr = pieces[i].addr - from + to;
    }
}

static void check_copies(struct gather_piece *pieces, uint8_t *source, void *source_there)
{
    uint8_t *expected = new_bytes(ROOM, false), *got = new_bytes(ROOM, false);
    void *packed = on_device(ROOM, NULL), *target, *table;

    on_host_gather(pieces, PIECES, expected);
    move(pieces, (uintptr_t)source, (uintptr_t)source_there);
    table = on_device(PIECES * sizeof(*pieces), pieces);
    done(calls->gather(stream, table, PIECES, packed));
    back(got, packed, ROOM);
    need(memcmp(got, expected, ROOM) == 0, "gather");

    memset(expected, 0, ROOM);
    target = on_device(ROOM, NULL);
    move(pieces, (uintptr_t)source_there, (uintptr_t)expected);
    on_host_scatter(pieces, PIECES, got);
    move(pieces, (uintptr_t)expected, (uintptr_t)target);
    done(calls->copy(table, pieces, PIECES * sizeof(*pieces), stream));
    done(calls->scatter(stream, table, PIECES, packed));
    back(got, target, ROOM);
    need(memcmp(got, expected, ROOM) == 0, "scatter");
    move(pieces, (uintptr_t)target, (uintptr_t)source);
    calls->device_free(packed), calls->device_free(target), calls->device_free(table);
    free(expected), free(got);
}

static void check_pieces_digest(struct gather_piece *pieces, uint8_t *source, void *source_there, uint64_t image_bytes)
{
    uint32_t expected[ROOM / DIGEST_CHUNK + 1] = {0}, got[ROOM / DIGEST_CHUNK + 1] = {0};
    void *sums = on_device(sizeof(got), NULL), *table;

    on_host_digest_pieces(pieces, PIECES, image_bytes, expected);
    move(pieces, (uintptr_t)source, (uintptr_t)source_there);
    table = on_device(PIECES * sizeof(*pieces), pieces);
    done(calls->digest_pieces(stream, table, PIECES, image_bytes, sums));
    back(got, sums, sizeof(got));
    need(memcmp(got, expected, sizeof(got)) == 0, "digest of pieces");
    calls->device_free(sums), calls->device_free(table);
}

static void check_digests(const uint8_t *source, const uint8_t *source_there)
{
    static const uint64_t sizes[] = {1, 15, 17, 4095, 4097, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, ROOM - 64};
    uint32_t expected[ROOM / DIGEST_CHUNK + 1], got[ROOM / DIGEST_CHUNK + 1];
    void *crcs = on_device(sizeof(got), NULL);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (unsigned skew = 0; skew < 16; skew += 5) {
            digest_image(source + skew, sizes[i], expected);
            done(calls->digest(stream, source_there + skew, sizes[i], crcs));
            back(got, crcs, sizeof(got));
            need(memcmp(got, expected, chunk_count(sizes[i]) * sizeof(*got)) == 0, "digest");
        }
    }
    calls->device_free(crcs);
}

static void load(const char *path)
{
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    cuda_calls_fn *get = NULL;
    struct cuda_place before;
    int count = 0;

    need(module != NULL, "the module can be loaded");
    *(void **)&get = dlsym(module, CUDA_CALLS_SYMBOL);
    need(get != NULL && get()->version == CUDA_CALLS_VERSION, "the module is of this build");
    calls = get();
    if (calls->device_count(&count) != 0 || count == 0) {
        puts("skipped: no CUDA device");
        exit(SKIPPED);
    }
    done(calls->enter(0, &before));
    done(calls->stream_new(&stream));
}

int main(int argc, char **argv)
{
    struct gather_piece *pieces = calloc(PIECES, sizeof(*pieces));
    uint8_t *source, *source_there;
    uint64_t image_bytes;

    need(argc == 2 && pieces != NULL, "usage: gpu_kernels MODULE");
    load(argv[1]);
    source = new_bytes(ROOM, true);
    source_there = on_device(ROOM, source);
    image_bytes = make_pieces(pieces, (uintptr_t)source);
    check_copies(pieces, source, source_there);
    check_pieces_digest(pieces, source, source_there, image_bytes);
    check_digests(source, source_there);
    puts("gather, scatter and both digests are bit for bit those of the host");
    free(source);
    free(pieces);
    return 0;
}
