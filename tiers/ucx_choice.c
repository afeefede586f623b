/* SPDX-License-Identifier: Apache-2.0
 * See ucx_choice.h. */
#include "tiers/ucx_choice.h"

#include <dirent.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY     "libucp.so.0"
#define RDMA_MODULE "ucx/libuct_ib.so.0"
#define LEAST_MINOR 13u /* of UCX 1: older ones lack what link_ucx.c calls */

/* Of those of another machine's processors, none exists or none can be loaded. */
static const char *const usual_directories[] = {"/usr/lib/x86_64-linux-gnu",
                                                "/usr/lib/aarch64-linux-gnu",
                                                "/usr/lib64",
                                                "/usr/local/lib",
                                                "/usr/local/lib64",
                                                "/usr/lib",
                                                NULL};

/* ---- looking ------------------------------------------------------------------------------------------------- */

static int find_loaded(struct dl_phdr_info *info, size_t size, void *ctx)
{
    char *out = ctx;
    const char *slash = strrchr(info->dlpi_name, '/');
    (void)size;
    if (slash == NULL || strncmp(slash + 1, "libucp.so", strlen("libucp.so")) != 0) {
        return 0;
    }
    snprintf(out, PATH_MAX, "%.*s", (int)(slash - info->dlpi_name), info->dlpi_name);
    return 1;
}

static bool has_file(const char *directory, const char *name)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return access(path, R_OK) == 0;
}

/* Any entry: each device has one. */
static bool has_devices(const char *path)
{
    DIR *dir = opendir(path);
    bool any = false;
    if (dir == NULL) {
        return false;
    }
    for (const struct dirent *entry; !any && (entry = readdir(dir)) != NULL;) { /* NOLINT(concurrency-mt-unsafe) */
        any = entry->d_name[0] != '.';
    }
    closedir(dir);
    return any;
}

/* Whether a path ends here, in a list with colons, but for slashes. */
static bool path_ends(const char *at)
{
    at += strspn(at, "/");
    return *at == '\0' || *at == ':';
}

static bool is_named(const char *ld_path, const char *directory)
{
    size_t len = strlen(directory);
    for (const char *at = ld_path; at != NULL && len > 0; at = strchr(at, ':')) {
        at += *at == ':';
        if (strncmp(at, directory, len) == 0 && path_ends(at + len)) {
            return true;
        }
    }
    return false;
}

/* A wheel's agent finds its UCX in a directory that is named by "..". */
static void simplify(char path[PATH_MAX])
{
    char real[PATH_MAX];
    if (realpath(path, real) != NULL) {
        memcpy(path, real, sizeof(real));
    }
}

void ucx_look(const struct ucx_places *places, struct ucx_facts *out)
{
    const char *const *directories = places->directories != NULL ? places->directories : usual_directories;
    *out = (struct ucx_facts){.wanted = places->transports != NULL && places->transports[0] != '\0' &&
                                        strcmp(places->transports, "tcp") != 0,
                              .devices = has_devices(places->devices)};
    if (places->loaded != NULL) {
        snprintf(out->loaded, sizeof(out->loaded), "%s", places->loaded);
    } else {
        (void)dl_iterate_phdr(find_loaded, out->loaded);
    }
    out->loaded_has_rdma = has_file(out->loaded, RDMA_MODULE);
    out->named = is_named(places->ld_path, out->loaded);
    simplify(out->loaded); /* only now: LD_LIBRARY_PATH may name it by a link */
    for (size_t i = 0; directories[i] != NULL && out->system[0] == '\0'; i++) {
        if (has_file(directories[i], LIBRARY) && has_file(directories[i], RDMA_MODULE)) {
            snprintf(out->system, sizeof(out->system), "%s", directories[i]);
        }
    }
    if (out->devices && out->wanted && !out->loaded_has_rdma && !out->named && out->system[0] != '\0' &&
        !places->version(out->system, &out->version)) { /* only then, as it takes a process */
        out->version = (struct ucx_version){0};
    }
}

/* ---- choosing ------------------------------------------------------------------------------------------------ */

bool ucx_prefers_system(const struct ucx_facts *f, char *why_out, size_t cap)
{
    if (f->named) {
        snprintf(why_out, cap, "LD_LIBRARY_PATH names it");
    } else if (f->loaded_has_rdma) {
        snprintf(why_out, cap, "it has transports for RDMA");
    } else if (!f->devices) {
        snprintf(why_out, cap, "this machine has no RDMA devices");
    } else if (!f->wanted) {
        snprintf(why_out, cap,
                 "this machine has RDMA devices, but UCX_TLS does not ask for them: agents use TCP by default");
    } else if (f->system[0] == '\0') {
        snprintf(why_out, cap,
                 "it has no transports for RDMA, and no other UCX is installed here: install the system's, or name "
                 "one in LD_LIBRARY_PATH");
    } else if (f->version.major != 1 || f->version.minor < LEAST_MINOR) {
        snprintf(why_out, cap,
                 "it has no transports for RDMA, and the system's UCX in %s is not 1.%u or newer, or cannot be loaded",
                 f->system, LEAST_MINOR);
    } else {
        snprintf(why_out, cap, "UCX_TLS asks for RDMA, for which the one in %s has no transports", f->loaded);
        return true;
    }
    return false;
}
