/* SPDX-License-Identifier: Apache-2.0
 * Makes a published version out of the layouts of the ranks that have saved it, for tests of what reads one. */
#ifndef TCK_TESTS_MADE_VERSION_H
#define TCK_TESTS_MADE_VERSION_H

#include "base/layout.h"
#include "tiers/manifest.h"

struct made_version {
    struct manifest manifest;
    int dir_fd;
};

/* In a new directory below job_dir, whose last part is the name of the job. Whatever goes wrong ends the program. */
void made_version_begin(struct made_version *made, const char *job_dir, struct version version, uint32_t world_size);
/* The files of a rank, with what its records hold now; its layout is built. Ranks that share a shard hold the same. */
void made_version_add(struct made_version *made, const struct layout *layout);
/* Writes .index, of the files that have been added. */
void made_version_index(struct made_version *made);
/* Writes the manifest. */
void made_version_end(struct made_version *made);

#endif
