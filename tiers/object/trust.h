/* SPDX-License-Identifier: Apache-2.0
 * Whose certificates are trusted. A libcurl looks only where the distribution that built it has them. */
#ifndef TCK_TIERS_TRUST_H
#define TCK_TIERS_TRUST_H

/* The file of certificates to trust: the configured one (NULL or "": none is), else SSL_CERT_FILE, else that of this
 * machine's distribution. NULL: none was found. */
const char *trust_file(const char *configured);

/* The first of these files that can be read; they end with NULL. */
const char *trust_first(const char *const *files);

#endif
