/* SPDX-License-Identifier: Apache-2.0
 * What tck_published_t points to. */
#ifndef TCK_READER_PUBLISHED_H
#define TCK_READER_PUBLISHED_H

#include "published/checked_chunks.h"
#include "published/file_table.h"
#include "published/find_version.h"

struct tck_published {
    struct found found;
    struct chunks chunks;
    struct table table;
    struct error error;
};

/* Opens exactly this version, whose table is still to be made (table_read, table_of). files_unseen: as
 * find_files_unseen. */
must_check tck_status_t published_begin(const struct config *config, struct version version, bool files_unseen,
                                        struct tck_published **out, struct error *err);
/* How many ranks have saved exactly this box of the tensor as their own, and this rank's entry among them, if there
 * is one. */
bool published_own(const struct tck_published *published, const char *key, const struct box *box, uint32_t rank,
                   uint64_t *index_out, uint32_t *owners_out);
/* TCK_ERR_LAYOUT unless all of the tensor that the entry belongs to was saved. */
must_check tck_status_t published_check_whole(const struct tck_published *published, const struct entry *entry,
                                              struct error *err);

/* The name of a shard's file in the directory of a version, at most size - 1 bytes of it. */
void published_file_name(struct hash128 shard, char *out, size_t size);

/* Sets what tck_published_errmsg(NULL) says in this thread. */
void published_set_error(const struct error *err);

#endif
