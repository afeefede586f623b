/* SPDX-License-Identifier: Apache-2.0
 * Finding supervisor and agent: both in one directory, so that they are of one version. */
#include "client/install_paths.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUPERVISOR "tierckpt-supervisor"
#define AGENT      "tierckptd"

/* The places looked at, for the error. */
struct search {
    struct programs found;
    char places[ERROR_TEXT_BYTES];
};

static bool executable(char path[PATH_MAX], const char *dir, const char *name)
{
    int len = snprintf(path, PATH_MAX, "%s/%s", dir, name);

    return len > 0 && len < PATH_MAX && access(path, X_OK) == 0;
}

static bool find_in(struct search *search, const char *dir)
{
    size_t used = strlen(search->places);

    snprintf(search->places + used, sizeof(search->places) - used, "%s%s", used == 0 ? "" : ", ", dir);
    return executable(search->found.supervisor, dir, SUPERVISOR) && executable(search->found.agent, dir, AGENT);
}

/* "The library" is the shared object that contains this function. */
bool library_dir(char out[PATH_MAX])
{
    Dl_info info;
    char *slash;

    if (dladdr((void *)(uintptr_t)install_paths_find, &info) == 0 || realpath(info.dli_fname, out) == NULL) {
        return false;
    }
    slash = strrchr(out, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

static bool find_near_library(struct search *search)
{
    static const char *const places[] = {"/../bin", "/../libexec/tierckpt", ""};
    char library[PATH_MAX], dir[PATH_MAX + 32];

    if (!library_dir(library)) {
        return false;
    }
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(dir, sizeof(dir), "%s%s", library, places[i]);
        if (find_in(search, dir)) {
            return true;
        }
    }
    return false;
}

tck_status_t install_paths_find(struct programs *out, struct error *err)
{
    const char *chosen = getenv("TIERCKPT_BIN_DIR");
    struct search search = {.places = ""};
    bool found;

    if (chosen != NULL && chosen[0] != '\0') {
        found = find_in(&search, chosen);
    } else {
        found = find_near_library(&search) || find_in(&search, TCK_INSTALL_BINDIR);
    }
    if (!found) {
        return error_set(err, TCK_ERR_NOENT, "programs " SUPERVISOR " and " AGENT " are not in %s", search.places);
    }
    *out = search.found;
    return TCK_OK;
}
