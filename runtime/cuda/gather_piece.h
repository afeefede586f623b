/* SPDX-License-Identifier: Apache-2.0
 * What the kernels copy and digest; used by host and device. */
#ifndef TCK_CUDA_GATHER_PIECE_H
#define TCK_CUDA_GATHER_PIECE_H

#include <stdint.h>

/* A warp copies a piece, so a caller cuts larger ones into pieces of this size, or has them copied by themselves. */
#define KERNELS_PIECE_BYTES (64u << 10)

/* A stretch of memory and where it lies in the packed buffer. Any address, offset and length is allowed; multiples
 * of 16 are copied fastest. */
struct gather_piece {
    uint64_t addr, offset, bytes;
};

#endif
