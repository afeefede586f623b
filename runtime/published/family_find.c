/* SPDX-License-Identifier: Apache-2.0
 * See family_find.h. */
#include "published/family_find.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXTENDS_MAX     8 /* mappings that extend each other */
#define NAMES_BYTES_MAX (1 << 20)

/* The directory of the library or program that contains this function. */
static bool own_dir(char out[PATH_MAX])
{
    Dl_info info;
    char own[PATH_MAX];
    if (dladdr((void *)(uintptr_t)family_load, &info) == 0 || realpath(info.dli_fname, own) == NULL) {
        return false;
    }
    return snprintf(out, PATH_MAX, "%s", dirname(own)) < PATH_MAX;
}

/* The library may be in a directory of the architecture below lib. The build tree has the first of these, too. */
static bool find_installed(const char *name, char out[PATH_MAX])
{
    static const char *const places[] = {"/../share/tierckpt", "/../../share/tierckpt"};
    char dir[PATH_MAX];
    bool found = false;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places) && !found && own_dir(dir); i++) {
        found =
            snprintf(out, PATH_MAX, "%s%s/names/%s.json", dir, places[i], name) < PATH_MAX && access(out, R_OK) == 0;
    }
    return found ||
           (snprintf(out, PATH_MAX, TCK_INSTALL_DATADIR "/names/%s.json", name) < PATH_MAX && access(out, R_OK) == 0);
}

static tck_status_t path_of(const char *name, char out[PATH_MAX], struct error *err)
{
    if (strchr(name, '/') != NULL) {
        return snprintf(out, PATH_MAX, "%s", name) < PATH_MAX
                   ? TCK_OK
                   : error_set(err, TCK_ERR_INVAL, "the path of the mapping is too long");
    }
    return find_installed(name, out)
               ? TCK_OK
               : error_set(err, TCK_ERR_NOENT,
                           "no mapping \"%.100s\" is installed, neither near this library nor in " TCK_INSTALL_DATADIR
                           "/names; a file of your own is named with a slash, such as ./names.json",
                           name);
}

static tck_status_t load_one(const char *name, struct family_rules **out, const char **base_out, struct error *err)
{
    char path[PATH_MAX], *text = NULL;
    struct stat st;
    tck_status_t status = path_of(name, path, err);
    if (status != TCK_OK) {
        return status;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        status = error_set(err, status_of_errno(errno), "open: %m");
    } else if (!S_ISREG(st.st_mode) || st.st_size > NAMES_BYTES_MAX) {
        status = error_set(err, TCK_ERR_INVAL, "it is no file, or has more than %d bytes", NAMES_BYTES_MAX);
    } else {
        text = malloc((size_t)st.st_size + 1);
        status = text == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for a mapping") : TCK_OK;
    }
    if (status == TCK_OK && pread(fd, text, (size_t)st.st_size, 0) != (ssize_t)st.st_size) {
        status = error_set(err, TCK_ERR_IO, "read: %m");
    }
    if (status == TCK_OK) {
        status = family_parse(text, (size_t)st.st_size, out, base_out, err);
    }
    free(text);
    if (fd >= 0) {
        close(fd);
    }
    return status == TCK_OK ? TCK_OK : error_prefix(err, "%.200s", path);
}

static tck_status_t load_chain(const char *name, int depth, struct family_rules **out, struct error *err)
{
    struct family_rules *rules = NULL, *base = NULL;
    const char *next = NULL;
    if (depth > EXTENDS_MAX) {
        return error_set(err, TCK_ERR_INVAL, "more than %d mappings extend each other", EXTENDS_MAX);
    }
    tck_status_t status = load_one(name, &rules, &next, err);
    if (status == TCK_OK && next != NULL) {
        status = load_chain(next, depth + 1, &base, err);
        if (status == TCK_OK) {
            status = family_extend(rules, base, err);
        }
    }
    if (status != TCK_OK) {
        family_free(rules);
        return status;
    }
    *out = rules;
    return TCK_OK;
}

tck_status_t family_load(const char *name, struct family_rules **out, struct error *err)
{
    return load_chain(name, 0, out, err);
}
