/* SPDX-License-Identifier: Apache-2.0
 * Paths as users write them, made absolute. */
#include "base/path.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SHOWN_MAX (PATH_SHOWN_BYTES - 1) /* bytes of a path in an error */
#define S3        "s3://"

/* The length of "s3:" in "s3://bucket/x", and in "s3:/bucket/x", which path libraries turn it into; 0 if there is none.
 */
static size_t scheme_length(const char *text)
{
    size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+.-");
    return len >= 2 && isalpha((unsigned char)text[0]) && text[len] == ':' && text[len + 1] == '/' ? len + 1 : 0;
}

/* The last '@': a secret key may have '/' in it, unencoded. */
void path_shown(const char *text, char out[PATH_SHOWN_BYTES])
{
    size_t scheme = scheme_length(text);
    const char *at = scheme == 0 ? NULL : strrchr(text, '@');
    if (at == NULL) {
        snprintf(out, PATH_SHOWN_BYTES, "%s", text);
    } else {
        snprintf(out, PATH_SHOWN_BYTES, "%.*s//%s", (int)scheme, text, at + 1);
    }
}

static tck_status_t refuse_url(const char *text, size_t scheme, struct error *err)
{
    char shown[PATH_SHOWN_BYTES];
    if (strncmp(text, "file:", scheme) == 0) {
        const char *path = text + scheme + strspn(text + scheme, "/") - 1;
        return error_set(err, TCK_ERR_CONFIG, "\"%.*s\" is a URL: write the path alone, \"%.*s\"", SHOWN_MAX, text,
                         SHOWN_MAX, path);
    }
    path_shown(text, shown);
    return error_set(err, TCK_ERR_CONFIG,
                     "\"%s\" is a URL, and %.*s is not supported: give a path on a file system that is mounted here",
                     shown, (int)scheme - 1, text);
}

static bool has_variable(const char *text)
{
    for (const char *dollar = strchr(text, '$'); dollar != NULL; dollar = strchr(dollar + 1, '$')) {
        if (isalpha((unsigned char)dollar[1]) || dollar[1] == '_' || dollar[1] == '{') {
            return true;
        }
    }
    return false;
}

static tck_status_t refuse_misread(const char *text, struct error *err)
{
    size_t scheme = scheme_length(text);
    if (scheme != 0) {
        return refuse_url(text, scheme, err);
    }
    if (has_variable(text)) {
        return error_set(err, TCK_ERR_CONFIG, "\"%.*s\" has a variable, and variables are not expanded: write the path",
                         SHOWN_MAX, text);
    }
    if (text[0] == '~' && text[1] != '\0' && text[1] != '/') {
        return error_set(err, TCK_ERR_CONFIG,
                         "\"%.*s\": only your own \"~\" is expanded: write the full path of the other user's directory",
                         SHOWN_MAX, text);
    }
    return TCK_OK;
}

/* Drops "." components and all slashes but one between two others. ".." stays: what it leads to depends on links. */
static void tidy(char *path)
{
    char *to = path;
    for (const char *from = path; *from != '\0';) {
        from += strspn(from, "/");
        size_t len = strcspn(from, "/");
        if (len > 0 && !(len == 1 && from[0] == '.')) {
            *to++ = '/';
            memmove(to, from, len);
            to += len;
        }
        from += len;
    }
    if (to == path) {
        *to++ = '/';
    }
    *to = '\0';
}

/* What text is relative to, and the rest of it; NULL if it is absolute. */
static tck_status_t find_base(const char **text, const char *dir, char here[PATH_MAX], const char **base_out,
                              struct error *err)
{
    *base_out = NULL;
    if ((*text)[0] == '~') {
        *base_out = secure_getenv("HOME");
        ++*text;
        if (*base_out == NULL || (*base_out)[0] != '/') {
            return error_set(err, TCK_ERR_CONFIG, "\"~%.*s\": HOME is not set, so \"~\" is unknown: write the path",
                             SHOWN_MAX, *text);
        }
    } else if ((*text)[0] != '/') {
        *base_out = dir != NULL ? dir : getcwd(here, PATH_MAX);
        if (*base_out == NULL) {
            return error_set(err, TCK_ERR_CONFIG, "\"%.*s\" is relative, and the working directory is unknown: %m",
                             SHOWN_MAX, *text);
        }
    }
    return TCK_OK;
}

static tck_status_t join(const char *text, const char *dir, char *out, size_t cap, struct error *err)
{
    char here[PATH_MAX], joined[2 * PATH_MAX];
    const char *base, *rest = text;
    tck_status_t status = find_base(&rest, dir, here, &base, err);
    if (status != TCK_OK) {
        return status;
    }
    int len = snprintf(joined, sizeof(joined), "%s/%s", base != NULL ? base : "", rest);
    if (len >= 0 && (size_t)len < sizeof(joined)) {
        tidy(joined);
    }
    if (len < 0 || (size_t)len >= sizeof(joined) || strlen(joined) >= cap) {
        return error_set(err, TCK_ERR_CONFIG, "\"%.*s...\" as an absolute path is longer than %zu bytes", SHOWN_MAX,
                         text, cap - 1);
    }
    memcpy(out, joined, strlen(joined) + 1);
    return TCK_OK;
}

tck_status_t path_absolute(const char *text, const char *dir, char *out, size_t cap, struct error *err)
{
    if (text[0] == '\0') {
        out[0] = '\0';
        return TCK_OK;
    }
    tck_status_t status = refuse_misread(text, err);
    return status == TCK_OK ? join(text, dir, out, cap, err) : status;
}

tck_status_t path_of_dir(const char *file, char *out, size_t cap, struct error *err)
{
    char here[PATH_MAX], joined[2 * PATH_MAX];
    const char *base = file[0] == '/' ? "" : getcwd(here, sizeof(here));
    int len = base == NULL ? -1 : snprintf(joined, sizeof(joined), "%s/%s", base, file);
    if (len < 0 || (size_t)len >= sizeof(joined)) {
        return error_set(err, TCK_ERR_CONFIG, "the directory of the file cannot be determined: %m");
    }
    *strrchr(joined, '/') = '\0';
    tidy(joined);
    if (strlen(joined) >= cap) {
        return error_set(err, TCK_ERR_CONFIG, "the file's directory has a path longer than %zu bytes", cap - 1);
    }
    memcpy(out, joined, strlen(joined) + 1);
    return TCK_OK;
}

void path_first_missing(const char *path, char *out, size_t cap)
{
    snprintf(out, cap, "%s", path);
    for (char *slash = strchr(out + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (access(out, F_OK) != 0) {
            return;
        }
        *slash = '/';
    }
}

tck_status_t path_unopened(const char *key, const char *path, int errnum, struct error *err)
{
    char missing[PATH_MAX];
    path_first_missing(path, missing, sizeof(missing));
    if (errnum == ENOENT && strcmp(missing, path) != 0) {
        return error_set(
            err, TCK_ERR_IO,
            "%s %s does not exist, as %s is not there: correct the path, or mount the file system that belongs there",
            key, path, missing);
    }
    if (errnum == ENOENT) {
        return error_set(err, TCK_ERR_IO,
                         "%s %s does not exist: correct the path, or mount the file system that belongs there", key,
                         path);
    }
    errno = errnum;
    return error_set(err, status_of_errno(errnum), "%s %s cannot be opened: %m", key, path);
}

bool path_is_memory(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

/* ---- URLs ------------------------------------------------------------------------------------------------------ */

bool path_is_url(const char *path)
{
    return strncmp(path, S3, sizeof(S3) - 1) == 0;
}

/* A server or a proxy takes none of these names for something else. */
bool path_is_key(const char *text, size_t len)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t at = 0;
    while (at < len) {
        size_t part = strspn(text + at, allowed);
        bool dots = (part == 1 && text[at] == '.') || (part == 2 && text[at] == '.' && text[at + 1] == '.');
        if (part == 0 || dots || (at + part < len && text[at + part] != '/')) {
            return false;
        }
        at += part + 1;
    }
    return len > 0 && text[len - 1] != '/';
}

static tck_status_t keep_url(const char *text, char *out, size_t cap, struct error *err)
{
    char shown[PATH_SHOWN_BYTES];
    size_t len = strlen(text);
    while (len > sizeof(S3) - 1 && text[len - 1] == '/') {
        len--;
    }
    path_shown(text, shown);
    if (!path_is_key(text + sizeof(S3) - 1, len - (sizeof(S3) - 1))) {
        return error_set(err, TCK_ERR_CONFIG,
                         "\"%s\": write " S3 "bucket or " S3 "bucket/prefix, with letters, digits and . _ - only%s",
                         shown,
                         strchr(text, '@') == NULL ? ""
                                                   : "; credentials have places of their own, such as "
                                                     "AWS_ACCESS_KEY_ID");
    }
    if (len >= cap) {
        return error_set(err, TCK_ERR_CONFIG, "\"%s...\" is longer than %zu bytes", shown, cap - 1);
    }
    memcpy(out, text, len);
    out[len] = '\0';
    return TCK_OK;
}

tck_status_t path_or_url(const char *text, const char *dir, char *out, size_t cap, struct error *err)
{
    if (path_is_url(text)) {
        return keep_url(text, out, cap, err);
    }
    if (strncmp(text, "s3:", 3) == 0) { /* what path libraries make of it */
        char shown[PATH_SHOWN_BYTES];
        path_shown(text, shown);
        return error_set(err, TCK_ERR_CONFIG, "\"%s\": write " S3 "bucket/prefix, with two slashes", shown);
    }
    return path_absolute(text, dir, out, cap, err);
}
