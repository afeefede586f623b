/* SPDX-License-Identifier: Apache-2.0
 * What we take from libcrypto's EVP interface; this module is the only one that includes its header. A result that
 * could not be computed (out of memory) is random, so that it equals nothing that anybody could send. */
#ifndef TCK_BASE_CRYPTO_H
#define TCK_BASE_CRYPTO_H

#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

must_check tck_status_t random_bytes(void *out, size_t len);
void sha256(const void *data, size_t len, uint8_t out[SHA256_BYTES]);

struct crypto_bytes {
    const void *data;
    size_t len;
};
/* HMAC-SHA256(key, first || second). */
void hmac_sha256(struct crypto_bytes key, struct crypto_bytes first, struct crypto_bytes second,
                 uint8_t out[SHA256_BYTES]);

/* Bytes of the text that base64 makes of len bytes, with the NUL. */
#define BASE64_BYTES(len) (((len) + 2) / 3 * 4 + 1)
void base64(const void *data, size_t len, char *out);

#endif
