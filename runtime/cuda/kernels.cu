/* SPDX-License-Identifier: Apache-2.0
 * The kernels of kernels.h: they map threads to the lanes of kernels_core.h. nvcc includes the runtime's
 * declarations by itself. */
#include "cuda/kernels.h"
#include "cuda/kernels_core.h"

#define COPY_TEAMS 8    /* warps of a block */
#define BLOCKS_MAX 1024 /* of a launch; each continues with further pieces */

static __device__ uint64_t team(void)
{
    return (uint64_t)blockIdx.x * COPY_TEAMS + threadIdx.x / COPY_LANES;
}

static __global__ void gather(const struct gather_piece *pieces, uint32_t count, uint8_t *packed)
{
    for (uint64_t i = team(); i < count; i += (uint64_t)gridDim.x * COPY_TEAMS) {
        struct gather_piece piece = pieces[i];

        copy_core_lane(packed + piece.offset, (const void *)piece.addr, piece.bytes, threadIdx.x % COPY_LANES);
    }
}

static __global__ void scatter(const struct gather_piece *pieces, uint32_t count, const uint8_t *packed)
{
    for (uint64_t i = team(); i < count; i += (uint64_t)gridDim.x * COPY_TEAMS) {
        struct gather_piece piece = pieces[i];

        copy_core_lane((void *)piece.addr, packed + piece.offset, piece.bytes, threadIdx.x % COPY_LANES);
    }
}

/* Each block computes its own table, which takes less time than reading a chunk. */
static __device__ void make_table(uint32_t *table)
{
    for (uint32_t i = threadIdx.x; i < DIGEST_ENTRIES; i += DIGEST_LANES) {
        table[i] = digest_core_entry(i);
    }
    __syncthreads();
}

/* The XOR over all lanes of the block; thread 0 gets it. */
static __device__ uint32_t xor_of_block(uint32_t sum, uint32_t *of_warps)
{
    for (int distance = 16; distance > 0; distance /= 2) {
        sum ^= __shfl_xor_sync(~0u, sum, distance);
    }
    __syncthreads(); /* of_warps may still be in use for the previous piece */
    if (threadIdx.x % 32 == 0) {
        of_warps[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < DIGEST_LANES / 32; warp++) {
            sum ^= of_warps[warp];
        }
    }
    return sum;
}

static __global__ void digest(const uint8_t *image, uint64_t bytes, uint32_t *crcs)
{
    __shared__ uint32_t table[DIGEST_ENTRIES], of_warps[DIGEST_LANES / 32];
    uint32_t count = digest_core_chunks(bytes);

    make_table(table);
    for (uint32_t i = blockIdx.x; i < count; i += gridDim.x) {
        const uint8_t *chunk = image + (uint64_t)i * DIGEST_CHUNK;
        uint32_t size = digest_core_chunk_size(bytes, i);
        uint32_t sum = xor_of_block(digest_core_lane(chunk, size, 0, threadIdx.x, table), of_warps);

        if (threadIdx.x == 0) {
            crcs[i] = digest_core_finish(sum, size);
        }
    }
}

static __global__ void digest_pieces(const struct gather_piece *pieces, uint32_t count, uint64_t image_bytes,
                                     uint32_t *crcs)
{
    __shared__ uint32_t table[DIGEST_ENTRIES], of_warps[DIGEST_LANES / 32];

    make_table(table);
    for (uint32_t i = blockIdx.x; i < count; i += gridDim.x) {
        struct gather_piece piece = pieces[i];
        uint64_t after = digest_core_after(&piece, image_bytes);
        uint32_t sum = digest_core_lane((const void *)piece.addr, piece.bytes, after, threadIdx.x, table);

        sum = xor_of_block(sum, of_warps);
        if (threadIdx.x == 0) {
            atomicXor(&crcs[piece.offset / DIGEST_CHUNK], sum);
        }
    }
}

static unsigned blocks_for(uint64_t count, unsigned each)
{
    uint64_t blocks = (count + each - 1) / each;

    return blocks < BLOCKS_MAX ? (unsigned)blocks : BLOCKS_MAX;
}

/* cudaLaunchKernel's own result: cudaGetLastError would clear an error that belongs to other code. */
static int launch(const void *kernel, unsigned blocks, unsigned threads, void **args, void *stream)
{
    if (blocks == 0) {
        return 0;
    }
    return (int)cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), args, 0, (cudaStream_t)stream);
}

int kernels_gather(void *stream, const struct gather_piece *pieces, uint32_t count, void *packed)
{
    void *args[] = {&pieces, &count, &packed};

    return launch((const void *)gather, blocks_for(count, COPY_TEAMS), COPY_TEAMS * COPY_LANES, args, stream);
}

int kernels_scatter(void *stream, const struct gather_piece *pieces, uint32_t count, const void *packed)
{
    void *args[] = {&pieces, &count, &packed};

    return launch((const void *)scatter, blocks_for(count, COPY_TEAMS), COPY_TEAMS * COPY_LANES, args, stream);
}

int kernels_digest(void *stream, const void *image, uint64_t bytes, uint32_t *crcs)
{
    void *args[] = {&image, &bytes, &crcs};

    return launch((const void *)digest, blocks_for(digest_core_chunks(bytes), 1), DIGEST_LANES, args, stream);
}

int kernels_digest_pieces(void *stream, const struct gather_piece *pieces, uint32_t count, uint64_t image_bytes,
                          uint32_t *crcs)
{
    void *args[] = {&pieces, &count, &image_bytes, &crcs};

    return launch((const void *)digest_pieces, blocks_for(count, 1), DIGEST_LANES, args, stream);
}
