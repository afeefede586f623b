/* SPDX-License-Identifier: Apache-2.0
 * One small request to a service that hands out credentials, repeated until it is decided or the time is over. */
#ifndef TCK_TIERS_AWS_FETCH_H
#define TCK_TIERS_AWS_FETCH_H

#include "tiers/object/http.h"

#define AWS_ANSWER_MAX (64u << 10)

struct aws_fetch {
    const char *what; /* for texts: whom is asked */
    const char *method, *url;
    const char *const *headers; /* up to a NULL */
    const char *body;           /* NULL: none */
    uint32_t deadline_ms;
    uint64_t until_ms; /* of clock_ms: the latest end; 0: none */
    bool direct;       /* never through a proxy */
};

/* The body of an answer 2xx, which the caller frees after overwriting it. TCK_ERR_NOENT: HTTP 404.
 * TCK_ERR_UNREACHABLE: there was no connection to it at all. TCK_ERR_TIMEDOUT: there was one. */
must_check tck_status_t aws_fetch(struct http_client *http, const struct aws_fetch *fetch, char **out,
                                  struct error *err);

#endif
