/* SPDX-License-Identifier: Apache-2.0
 * A server of HTTP that gives answers of the test's, one connection at a time, each closed after its answer. */
#ifndef TCK_TESTS_HTTP_FAKE_H
#define TCK_TESTS_HTTP_FAKE_H

#include <stdbool.h>

/* The whole answer to a request, given its text; static, or valid until the next request. */
typedef const char *http_fake_fn(const char *request);

/* Begins to serve on a free port, in a thread; url gets "http://127.0.0.1:<port>". Never ends: a test is a process. */
void http_fake_start(http_fake_fn *answer, char url[64]);

#endif
