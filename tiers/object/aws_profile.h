/* SPDX-License-Identifier: Apache-2.0
 * The files that AWS's tools share, ~/.aws/credentials and ~/.aws/config: one section each, as text, to values.
 * Read by lines of our own, because the libraries of Debian read another format: libini-config takes [Dev] and [dev]
 * for one section, inih cuts lines at 200 characters (session tokens are longer), and iniparser prints lines that it
 * does not understand, which may hold a secret. */
#ifndef TCK_TIERS_AWS_PROFILE_H
#define TCK_TIERS_AWS_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

/* Calls take for each "name = value" of the section, in order. Lines that begin with white space belong to the value
 * before them, in which nothing concerns us, and are passed over, as are comments and what is no such line. */
typedef void aws_profile_fn(void *ctx, const char *name, const char *value);

/* Whether there is a section of this name. text is changed: lines are ended in place. */
bool aws_profile_read(char *text, const char *section, aws_profile_fn *take, void *ctx);

#endif
