/* SPDX-License-Identifier: Apache-2.0
 * What tck_published_t points to. */
#ifndef TCK_READER_PUBLISHED_H
#define TCK_READER_PUBLISHED_H

#include "reader/chunks.h"
#include "reader/find.h"
#include "reader/table.h"

struct tck_published {
    struct found found;
    struct chunks chunks;
    struct table table;
    struct error error;
};

/* Sets what tck_published_errmsg(NULL) says in this thread. */
void published_set_error(const struct error *err);

#endif
