/* SPDX-License-Identifier: Apache-2.0
 * Where the programs that belong to this library are installed. */
#ifndef TCK_CLIENT_PROGRAMS_H
#define TCK_CLIENT_PROGRAMS_H

#include "base/status.h"
#include <limits.h>
#include <stdbool.h>

struct programs {
    char supervisor[PATH_MAX];
    char agent[PATH_MAX];
};

/* Looks into $TIERCKPT_BIN_DIR, or, if that is not set, into ../bin, ../libexec/tierckpt and the directory of the
 * loaded library, then into the directory of the installation. The error names all places. */
must_check tck_status_t install_paths_find(struct programs *out, struct error *err);

/* The directory of the loaded library. */
bool library_dir(char out[PATH_MAX]);

#endif
