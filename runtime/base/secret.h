/* SPDX-License-Identifier: Apache-2.0
 * The job's secret and what is made of it (libcrypto). The secret never appears in a log, an argument or an error. */
#ifndef TCK_BASE_SECRET_H
#define TCK_BASE_SECRET_H

#include "base/crypto.h"
#include <stdbool.h>

#define SECRET_BYTES 32
#define NONCE_BYTES  16
#define MAC_BYTES    SHA256_BYTES

struct secret {
    uint8_t bytes[SECRET_BYTES];
};

/* From a file of the user's (any content of 16..4096 bytes, hashed with SHA-256; refused if others may read it). */
must_check tck_status_t secret_load(const char *path, struct secret *out, struct error *err);
/* From the file at path below dir_fd, created with mode 0600 and a random content if it is not there. Of several
 * processes that do this at once, all get the same secret. */
must_check tck_status_t secret_load_or_make(int dir_fd, const char *name, struct secret *out, struct error *err);
/* The line that such a file holds, and a secret as one; for a store that is no file system. */
#define SECRET_LINE_BYTES (2 * SECRET_BYTES + 1) /* digits and a newline */
must_check tck_status_t secret_new_line(char line[SECRET_LINE_BYTES + 1], struct error *err);
must_check tck_status_t secret_of_line(const char *line, size_t len, const char *name, struct secret *out,
                                       struct error *err);
void secret_wipe_line(char *line, size_t len);
void secret_wipe(struct secret *secret);

/* HMAC-SHA256(secret, label || data). */
void secret_mac(const struct secret *secret, const char *label, const void *data, size_t len, uint8_t out[MAC_BYTES]);
/* In constant time. */
bool mac_equal(const uint8_t a[MAC_BYTES], const uint8_t b[MAC_BYTES]);

#endif
