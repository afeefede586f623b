/* SPDX-License-Identifier: Apache-2.0
 * Random bytes, SHA-256, HMAC and base64, through libcrypto. */
#include "base/crypto.h"
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <string.h>
#include <sys/random.h>

tck_status_t random_bytes(void *out, size_t len)
{
    uint8_t *to = out;
    while (len > 0) {
        ssize_t n = getrandom(to, len, 0);
        if (n < 0 && errno != EINTR) {
            return status_of_errno(errno);
        }
        if (n > 0) {
            to += n;
            len -= (size_t)n;
        }
    }
    return TCK_OK;
}

static void fail_closed(uint8_t out[SHA256_BYTES])
{
    if (random_bytes(out, SHA256_BYTES) != TCK_OK) {
        memset(out, 0xff, SHA256_BYTES);
    }
}

void sha256(const void *data, size_t len, uint8_t out[SHA256_BYTES])
{
    if (EVP_Digest(data, len, out, NULL, EVP_sha256(), NULL) != 1) {
        fail_closed(out);
    }
}

void hmac_sha256(struct crypto_bytes key, struct crypto_bytes first, struct crypto_bytes second,
                 uint8_t out[SHA256_BYTES])
{
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                 OSSL_PARAM_construct_end()};
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *ctx = hmac == NULL ? NULL : EVP_MAC_CTX_new(hmac);
    size_t written = 0;
    if (ctx == NULL || EVP_MAC_init(ctx, key.data, key.len, params) != 1 ||
        EVP_MAC_update(ctx, first.data, first.len) != 1 || EVP_MAC_update(ctx, second.data, second.len) != 1 ||
        EVP_MAC_final(ctx, out, &written, SHA256_BYTES) != 1 || written != SHA256_BYTES) {
        fail_closed(out);
    }
    EVP_MAC_CTX_free(ctx);
    EVP_MAC_free(hmac);
}

void base64(const void *data, size_t len, char *out)
{
    EVP_EncodeBlock((unsigned char *)out, data, (int)len);
}
