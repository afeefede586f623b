/* SPDX-License-Identifier: Apache-2.0
 * Derives the names of job and run where they are not given. */
#include "base/config_names.h"
#include "base/digest.h"

#include <stdio.h>
#include <string.h>

#define READABLE_MAX 40 /* of the last component */
#define ID_MAX       100

/* Removes empty components and ".", and each ".." together with the component before it. */
static void normalize(const char *path, char out[CONFIG_PATH])
{
    size_t len = 0;
    while (*path != '\0') {
        size_t part = strcspn(path, "/");
        if (part == 2 && path[0] == '.' && path[1] == '.') {
            while (len > 0 && out[--len] != '/') {
                /* up to the slash before it */
            }
        } else if (part > 0 && !(part == 1 && path[0] == '.') && len + part + 1 < CONFIG_PATH) {
            out[len++] = '/';
            memcpy(out + len, path, part);
            len += part;
        }
        path += part + (path[part] == '/');
    }
    out[len] = '\0';
}

/* Copies what fits, and replaces characters that a name must not contain. */
static void make_readable(const char *component, char out[READABLE_MAX + 1])
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = 0;
    for (; component[len] != '\0' && len < READABLE_MAX; len++) {
        bool usable = strchr(allowed, component[len]) != NULL && (len > 0 || component[len] != '.');
        out[len] = (char)(usable ? component[len] : '_');
    }
    out[len] = '\0';
}

void config_job_of(const char *save_dir, char out[CONFIG_NAME])
{
    char path[CONFIG_PATH], readable[READABLE_MAX + 1], digest[HASH128_TEXT];
    normalize(save_dir, path);
    const char *slash = strrchr(path, '/');
    make_readable(slash == NULL ? "root" : slash + 1, readable);
    hash128_text(hash128_of(path, strlen(path)), digest);
    snprintf(out, CONFIG_NAME, "%s-%.*s", readable, CONFIG_JOB_DIGEST_CHARS, digest);
}

/* An id that is too long is replaced by its digest. */
static void put_id(const char *kind, const char *id, char out[CONFIG_RUN])
{
    char digest[HASH128_TEXT];
    if (strlen(id) > ID_MAX) {
        hash128_text(hash128_of(id, strlen(id)), digest);
        id = digest;
    }
    snprintf(out, CONFIG_RUN, "%s:%.*s", kind, ID_MAX, id);
}

void config_run_id_of(const struct run_environment *env, char out[CONFIG_RUN])
{
    char step[CONFIG_RUN];
    memset(out, 0, CONFIG_RUN);
    if (env->torchelastic_run_id != NULL && strcmp(env->torchelastic_run_id, "none") != 0) {
        put_id("torchelastic", env->torchelastic_run_id, out);
    } else if (env->slurm_job_id != NULL && env->slurm_step_id != NULL) {
        snprintf(step, sizeof(step), "%.60s.%.60s", env->slurm_job_id, env->slurm_step_id);
        put_id("slurm", step, out);
    }
}
