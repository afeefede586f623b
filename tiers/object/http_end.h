/* SPDX-License-Identifier: Apache-2.0
 * How a request over HTTP ended. */
#ifndef TCK_TIERS_HTTP_END_H
#define TCK_TIERS_HTTP_END_H

enum http_end {
    HTTP_ANSWERED,  /* a whole answer came */
    HTTP_CUT,       /* no connection, or it ended too early */
    HTTP_TIMED_OUT, /* nothing moved for too long, or the time was over */
    HTTP_CANCELED,
    HTTP_TOO_BIG, /* more bytes than were allowed */
    HTTP_GARBLED, /* the answer is not what the protocol says; another attempt may get a whole one */
    HTTP_NO_MEMORY,
    HTTP_REFUSED, /* will not get better: a certificate that cannot be verified, an impossible address */
};

/* Of HTTP_REFUSED: why the server is not trusted, mostly what is wrong with its certificate. */
enum http_distrust {
    HTTP_TRUSTED,
    HTTP_DISTRUSTED,     /* for another reason, or the TLS library does not say which */
    HTTP_UNKNOWN_ISSUER, /* no file of trusted certificates has the CA */
    HTTP_OUT_OF_DATE,    /* it has expired, or is not valid yet */
    HTTP_OTHER_NAME,     /* it is for another host */
    HTTP_NO_BUNDLE,      /* the file of trusted certificates cannot be read */
    HTTP_NO_TLS          /* the server answers without TLS */
};

#endif
