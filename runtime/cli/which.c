/* SPDX-License-Identifier: Apache-2.0
 * Finds the job that a command is for: that of the configuration, or of the only agent that is known on this node. */
#include "cli/which.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct found {
    const struct which *which;
    char path[3 * CONFIG_PATH];
    uint32_t count;
};

static void look(struct found *found, const char *dir, const char *job)
{
    char path[2 * CONFIG_PATH];
    const char *node = found->which->node;
    snprintf(path, sizeof(path), "%s/%s", dir, job);
    DIR *d = opendir(path);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char file[3 * CONFIG_PATH];
        snprintf(file, sizeof(file), "%s/%s/config.json", path, e->d_name);
        if (name_is_safe(e->d_name) && (node == NULL || strcmp(node, e->d_name) == 0) && access(file, R_OK) == 0) {
            found->count++;
            snprintf(found->path, sizeof(found->path), "%s", file);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
}

/* Finds the configurations that were written to the runtime directory when agents were started. */
static void find(struct found *found, const char *runtime_dir)
{
    const char *job = found->which->job;
    DIR *d = opendir(runtime_dir);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (name_is_safe(e->d_name) && (job == NULL || strcmp(job, e->d_name) == 0)) {
            look(found, runtime_dir, e->d_name);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
}

static tck_status_t not_one(const struct found *found, const char *runtime_dir, struct error *err)
{
    if (found->count == 0) {
        return error_set(
            err, TCK_ERR_NOENT,
            "no agent%s%s is known on this node (below %s): name the job's configuration with --config FILE, "
            "or start the job",
            found->which->job != NULL ? " of job " : "", found->which->job != NULL ? found->which->job : "",
            runtime_dir);
    }
    return error_set(err, TCK_ERR_NOENT,
                     "%u agents are known on this node (below %s): choose one by --job and --node, or by --config FILE",
                     found->count, runtime_dir);
}

static tck_status_t of_the_one_agent(const struct which *which, struct config *out, struct error *err)
{
    struct config defaults;
    struct found found = {.which = which};
    tck_status_t status = config_defaults(&defaults, err);
    if (status != TCK_OK) {
        return status;
    }
    find(&found, defaults.runtime_dir);
    return found.count == 1 ? config_load(found.path, NULL, out, err) : not_one(&found, defaults.runtime_dir, err);
}

tck_status_t which_config(const struct which *which, bool or_defaults, struct config *out, bool *configured_out,
                          struct error *err)
{
    const char *file = which->config != NULL || which->config_json != NULL ? which->config : getenv("TIERCKPT_CONFIG");
    *configured_out = true;
    if (file != NULL || which->config_json != NULL) {
        return config_load(file, which->config_json, out, err);
    }
    tck_status_t status = of_the_one_agent(which, out, err);
    bool chosen = which->job != NULL || which->node != NULL;
    if (status == TCK_ERR_NOENT && or_defaults && !chosen) {
        *configured_out = false;
        return config_defaults(out, err);
    }
    return status;
}
