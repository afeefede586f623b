/* SPDX-License-Identifier: Apache-2.0
 * Paths as users write them, made absolute. */
#ifndef TCK_BASE_PATH_H
#define TCK_BASE_PATH_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

/* text as an absolute path without "." components, doubled or trailing slashes; "" stays "". A relative path begins at
 * dir (absolute; NULL: the working directory), "~" is the user's home. TCK_ERR_CONFIG for what would silently become a
 * directory of a strange name (a URL, "$HOME/x", "~other/x") and for what is longer than cap. The error says why. */
must_check tck_status_t path_absolute(const char *text, const char *dir, char *out, size_t cap, struct error *err);

/* The same, or a place in a store of objects, s3://<bucket>[/<prefix>], which stays as it is but for slashes at the
 * end. TCK_ERR_CONFIG, too, for a URL whose bucket or prefix no store has. */
must_check tck_status_t path_or_url(const char *text, const char *dir, char *out, size_t cap, struct error *err);

/* The directory that a file lies in, absolute, under the same rules but for names: a file is opened as it is written.
 */
must_check tck_status_t path_of_dir(const char *file, char *out, size_t cap, struct error *err);

/* The first component of an absolute path that is not there, cut off behind it; path itself if only the last one is
 * missing or none is. */
void path_first_missing(const char *path, char *out, size_t cap);

/* Why a directory that the configuration names under this key could not be opened: it does not exist, or the reason
 * that errnum gives; with the path and what to do. Never TCK_ERR_NOENT, which would say that nothing is in it. */
must_check tck_status_t path_unopened(const char *key, const char *path, int errnum, struct error *err);

/* Whether the first len bytes are names of letters, digits and ". _ -" with single '/' between them, and none of the
 * names is "." or "..": what keys and prefixes in a store of objects are made of. */
bool path_is_key(const char *text, size_t len);

/* Whether it names a place in a store of objects: s3://... */
bool path_is_url(const char *path);

/* A path or URL for a text, cut: of what stands before an '@' in a URL, which may be a password or a key, only the
 * scheme.
 */
#define PATH_SHOWN_BYTES 65
void path_shown(const char *text, char out[PATH_SHOWN_BYTES]);

/* Whether it is on a file system in memory (tmpfs), whose contents are lost with the machine. */
bool path_is_memory(const char *path);

#endif
