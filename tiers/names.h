/* SPDX-License-Identifier: Apache-2.0
 * Names in a job's directory on storage. Each parse accepts a name only if printing the result gives the same name. */
#ifndef TCK_TIERS_NAMES_H
#define TCK_TIERS_NAMES_H

#include "base/version.h"

#define DIR_NAME_MAX 64 /* with NUL */
#define MARKER_NAME  ".tierckpt"
#define LATEST_NAME  "LATEST" /* the file with the name of the newest published version */

/* The directory of a published version: v<step>.t<term>. */
void version_dir_name(struct version version, char out[DIR_NAME_MAX]);
bool version_dir_parse(const char *name, struct version *out);
/* The directory of a version that is being written, in the stage: <term>-<step>. */
void stage_dir_name(struct version version, char out[DIR_NAME_MAX]);
bool stage_dir_parse(const char *name, struct version *out);
/* The file that claims a term: term.<T>. */
void term_name(uint64_t term, char out[DIR_NAME_MAX]);
bool term_name_parse(const char *name, uint64_t *out);

/* In a store of objects, whose values cannot be changed, what is noted of a term later are objects of their own:
 * term.<T>.<what>. */
enum term_object { TERM_HOLDER, TERM_JOINED, TERM_RESTORE, TERM_COMMIT, TERM_END, TERM_OBJECTS };
void term_object_name(uint64_t term, enum term_object what, char out[DIR_NAME_MAX]);
bool term_object_parse(const char *name, uint64_t *term_out, enum term_object *what_out);

#endif
