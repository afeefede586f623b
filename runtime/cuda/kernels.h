/* SPDX-License-Identifier: Apache-2.0
 * The kernels of the module: many small tensors to and from one packed buffer, and the digests of what lies on the
 * device. These functions only launch the kernels: results are there once the stream has reached that point. Each
 * returns 0 or the CUDA error of its launch. A stream is a cudaStream_t of the current device; all other pointers
 * are addresses on that device. */
#ifndef TCK_CUDA_KERNELS_H
#define TCK_CUDA_KERNELS_H

#include "cuda/gather_piece.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copies the pieces (an array on the device) into packed, and out of it. Bytes between them are not touched. */
int kernels_gather(void *stream, const struct gather_piece *pieces, uint32_t count, void *packed);
int kernels_scatter(void *stream, const struct gather_piece *pieces, uint32_t count, const void *packed);

/* The CRC32C of each chunk of an image that lies in one piece, as digest_image makes them. */
int kernels_digest(void *stream, const void *image, uint64_t bytes, uint32_t *crcs);

/* Computes what the pieces contribute to the CRC32C of the chunks of an image of image_bytes, in which they lie at
 * their offsets. It is XORed into crcs, one for each chunk, which begin as 0. A piece may not cross the end of a
 * chunk. digest_core_finish turns the XOR of the contributions of all non-zero bytes of a chunk into its CRC. */
int kernels_digest_pieces(void *stream, const struct gather_piece *pieces, uint32_t count, uint64_t image_bytes,
                          uint32_t *crcs);

#ifdef __cplusplus
}
#endif
#endif
