/* SPDX-License-Identifier: Apache-2.0
 * All ranks need the headers of all files of a version to know what is where in it, but each reads only its part of
 * them from storage: otherwise a job of 1,000 ranks would read the beginning of 1,000 files 1,000 times. */
#ifndef TCK_CLIENT_SHARED_HEADERS_H
#define TCK_CLIENT_SHARED_HEADERS_H

#include "client/oob.h"
#include "published/published.h"

/* Makes the table of the version that this rank has begun to open, if status is TCK_OK. Collective: what fails on one
 * rank fails on all. If the ranks have not found the same manifest, each reads all headers itself. */
must_check tck_status_t shared_headers_read(const struct oob *oob, tck_status_t status, struct tck_published *published,
                                            struct error *err);

#endif
