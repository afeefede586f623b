/* SPDX-License-Identifier: Apache-2.0
 * See trust.h. */
#include "tiers/object/trust.h"

#include "tiers/object/aws_files.h"
#include <stddef.h>
#include <unistd.h>

static const char *const distributions[] = {
    "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu */
    "/etc/pki/tls/certs/ca-bundle.crt",                  /* Red Hat, Amazon */
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* newer ones of these */
    "/etc/ssl/ca-bundle.pem",                            /* SUSE */
    "/etc/ssl/cert.pem",                                 /* Alpine, Arch */
    NULL};

const char *trust_first(const char *const *files)
{
    for (; *files != NULL; files++) {
        if (access(*files, R_OK) == 0) {
            return *files;
        }
    }
    return NULL;
}

const char *trust_file(const char *configured)
{
    const char *variable = aws_variable("SSL_CERT_FILE");
    if (configured != NULL && configured[0] != '\0') {
        return configured;
    }
    return variable != NULL ? variable : trust_first(distributions);
}
