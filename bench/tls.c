/* SPDX-License-Identifier: Apache-2.0
 * See tls.h. */
#include "tls.h"

#include "bench.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>

#define HOST         "127.0.0.1"
#define DAY_S        86400L
#define BUFFER_BYTES (512 << 10)

struct tls {
    EVP_PKEY *key;
    X509 *certificate;
    SSL_CTX *server, *client;
};

struct tls_stream {
    SSL *ssl;
};

_Noreturn static void fail(const char *what)
{
    char why[256];
    ERR_error_string_n(ERR_get_error(), why, sizeof(why));
    bench_die("TLS: %s: %s", what, why);
}

/* ---- the certificate ------------------------------------------------------------------------------------------- */

static void add_extension(X509 *certificate, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, certificate, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    if (extension == NULL || X509_add_ext(certificate, extension, -1) != 1) {
        fail("make a certificate");
    }
    X509_EXTENSION_free(extension);
}

/* Signed by itself. */
static X509 *new_certificate(EVP_PKEY *key)
{
    X509 *certificate = X509_new();
    X509_NAME *name = certificate == NULL ? NULL : X509_get_subject_name(certificate);
    if (name == NULL || X509_set_version(certificate, X509_VERSION_3) != 1 ||
        ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1) != 1 ||
        X509_gmtime_adj(X509_getm_notBefore(certificate), -DAY_S) == NULL ||
        X509_gmtime_adj(X509_getm_notAfter(certificate), DAY_S) == NULL || X509_set_pubkey(certificate, key) != 1 ||
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)HOST, -1, -1, 0) != 1 ||
        X509_set_issuer_name(certificate, name) != 1) {
        fail("make a certificate");
    }
    add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE");
    add_extension(certificate, NID_subject_alt_name, "IP:" HOST);
    if (X509_sign(certificate, key, EVP_sha256()) <= 0) {
        fail("sign a certificate");
    }
    return certificate;
}

static void write_certificate(X509 *certificate, const char *path)
{
    FILE *file = fopen(path, "w");
    bool good = file != NULL && PEM_write_X509(file, certificate) == 1;
    if (file == NULL || fclose(file) != 0 || !good) {
        bench_die("write %s: %m", path);
    }
}

struct tls *tls_new(const char *certificate_file)
{
    struct tls *tls = bench_alloc(sizeof(*tls));
    *tls = (struct tls){.key = EVP_EC_gen("P-256"),
                        .server = SSL_CTX_new(TLS_server_method()),
                        .client = SSL_CTX_new(TLS_client_method())};
    if (tls->key == NULL || tls->server == NULL || tls->client == NULL) {
        fail("start");
    }
    tls->certificate = new_certificate(tls->key);
    write_certificate(tls->certificate, certificate_file);
    if (SSL_CTX_use_certificate(tls->server, tls->certificate) != 1 ||
        SSL_CTX_use_PrivateKey(tls->server, tls->key) != 1 ||
        SSL_CTX_load_verify_locations(tls->client, certificate_file, NULL) != 1) {
        fail("use the certificate");
    }
    SSL_CTX_set_verify(tls->client, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_read_ahead(tls->server, 1); /* the server must not be what is measured */
    SSL_CTX_set_default_read_buffer_len(tls->server, BUFFER_BYTES);
    return tls;
}

void tls_free(struct tls *tls)
{
    SSL_CTX_free(tls->server);
    SSL_CTX_free(tls->client);
    X509_free(tls->certificate);
    EVP_PKEY_free(tls->key);
    free(tls);
}

/* ---- streams --------------------------------------------------------------------------------------------------- */

static struct tls_stream *new_stream(SSL_CTX *ctx, int fd)
{
    struct tls_stream *stream = bench_alloc(sizeof(*stream));
    stream->ssl = SSL_new(ctx);
    if (stream->ssl == NULL || SSL_set_fd(stream->ssl, fd) != 1) {
        fail("begin a connection");
    }
    return stream;
}

struct tls_stream *tls_accept(const struct tls *tls, int fd)
{
    struct tls_stream *stream = new_stream(tls->server, fd);
    if (SSL_accept(stream->ssl) != 1) {
        tls_close(stream);
        return NULL;
    }
    return stream;
}

struct tls_stream *tls_connect(const struct tls *tls, int fd)
{
    struct tls_stream *stream = new_stream(tls->client, fd);
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(stream->ssl), HOST) != 1 || SSL_connect(stream->ssl) != 1) {
        fail("connect to the sink");
    }
    return stream;
}

void tls_close(struct tls_stream *stream)
{
    SSL_free(stream->ssl);
    free(stream);
}

ssize_t tls_read(struct tls_stream *stream, void *out, size_t len)
{
    return SSL_read(stream->ssl, out, len < INT_MAX ? (int)len : INT_MAX);
}

ssize_t tls_write(struct tls_stream *stream, const void *data, size_t len)
{
    size_t written;
    return SSL_write_ex(stream->ssl, data, len, &written) == 1 && written == len ? (ssize_t)len : -1;
}
