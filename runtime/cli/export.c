/* SPDX-License-Identifier: Apache-2.0
 * tierckpt export: tck_export as a command. */
#include "cli/storage.h"

#include "base/field.h"
#include "base/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int convert;
    tck_dtype_t dtype;
} kinds[] = {{"keep", 0, TCK_F32},
             {"float32", 1, TCK_F32},
             {"bfloat16", 1, TCK_BF16},
             {"float16", 1, TCK_F16},
             {"float64", 1, TCK_F64}};

static tck_status_t choose_dtype(const char *name, tck_export_params_t *params, struct error *err)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (strcmp(name, kinds[i].name) == 0) {
            params->convert = kinds[i].convert;
            params->dtype = kinds[i].dtype;
            return TCK_OK;
        }
    }
    return error_set(err, TCK_ERR_INVAL, "--dtype: %s is none of keep, float32, bfloat16, float16, float64", name);
}

static tck_status_t choose(const struct cli *cli, tck_export_params_t *params, struct error *err)
{
    static const struct field shard_size = {.name = "--shard-size", .type = FIELD_BYTES};
    const struct cli_export *export = &cli->export;
    tck_status_t status = choose_dtype(export->dtype != NULL ? export->dtype : "keep", params, err);
    params->directory = cli->argv[0];
    params->from_memory = export->from_memory;
    params->model_files = export->model_files;
    params->include = export->include;
    params->exclude = export->exclude;
    params->strip_prefix = export->strip_prefix;
    params->add_prefix = export->add_prefix;
    params->names = export->names;
    if (status == TCK_OK) {
        status = field_set(&shard_size, &params->shard_bytes, export->shard_size != NULL ? export->shard_size : "5GiB",
                           NULL, err);
    }
    return status;
}

/* ---- in the process that reads storage ------------------------------------------------------------------------- */

static tck_status_t export(const struct cli *cli, struct persistent *persistent, const void *ctx, json_t *answer,
                           struct error *err)
{
    tck_exported_t exported = {.struct_size = sizeof(exported)};
    (void)persistent;
    tck_status_t status = tck_export(ctx, &exported);
    if (status != TCK_OK) {
        return error_set(err, status, "%s", tck_published_errmsg(NULL));
    }
    json_add_bool(answer, "ok", true);
    json_add_u64(answer, "term", exported.version.term);
    json_add_u64(answer, "step", exported.version.step);
    json_add_u64(answer, "tensors", exported.tensor_count);
    json_add_u64(answer, "files", exported.file_count);
    json_add_u64(answer, "bytes", exported.bytes);
    json_add_str(answer, "directory", cli->argv[0]);
    return TCK_OK;
}

/* ---- in the command -------------------------------------------------------------------------------------------- */

static void tell(const struct cli *cli, const json_t *exported)
{
    char bytes[32];
    if (cli_json(cli, exported)) {
        return;
    }
    text_bytes(number_of(exported, "bytes"), bytes, sizeof(bytes));
    printf("version %" PRIu64 ".%" PRIu64 ": %" PRIu64 " tensors, %s, in %" PRIu64 " files below %s\n",
           number_of(exported, "term"), number_of(exported, "step"), number_of(exported, "tensors"), bytes,
           number_of(exported, "files"), text_of(exported, "directory"));
}

static tck_status_t run(const struct cli *cli, const tck_export_params_t *params, json_t **exported_out,
                        struct error *err)
{
    char where[CONFIG_PATH + 32];
    struct operation_metrics metrics;
    const struct storage_job job = {
        .work = export, .ctx = params, .use = STORAGE_UNOPENED, .elsewhere = where, .metrics = &metrics};
    snprintf(where, sizeof(where), "the export's directory %s", params->directory);
    tck_status_t status = operation_metrics_begin(cli, &metrics, err);
    if (status != TCK_OK) {
        return status;
    }
    status = storage_do(cli, &job, exported_out, err);
    operation_metrics_end(&metrics, &(struct operation_outcome){.values = {[OUTCOME_GOOD] = status == TCK_OK}});
    return status;
}

/* The given configuration; the defaults if --version-dir is given, which needs none. */
static tck_status_t configure(const struct cli *cli, struct cli *out, struct error *err)
{
    *out = *cli;
    return cli->export.version_dir != NULL ? config_defaults(&out->config, err) : TCK_OK;
}

int cli_export(const struct cli *cli)
{
    struct cli own;
    tck_published_open_params_t source = {
        .struct_size = sizeof(source), .path = cli->export.version_dir, .step = cli->step};
    tck_export_params_t params = {.struct_size = sizeof(params), .source = &source};
    json_t *exported = NULL;
    struct error err;
    if (cli->argc < 1) {
        fprintf(stderr, "usage: tierckpt export DIRECTORY\n");
        return 2;
    }
    json_t *config = source.path != NULL ? NULL : config_json(&cli->config);
    char *text = config != NULL ? json_print(config, false) : NULL;
    json_free(config);
    source.config_json = text;
    tck_status_t status = configure(cli, &own, &err);
    if (status == TCK_OK) {
        status = choose(cli, &params, &err);
    }
    if (status == TCK_OK && source.path != NULL && source.step != TCK_NEWEST) {
        status = error_set(&err, TCK_ERR_INVAL, "--version-dir names the version already: leave out --step");
    }
    if (status == TCK_OK) {
        status = run(&own, &params, &exported, &err);
    }
    free(text);
    if (status != TCK_OK) {
        return cli_fail(cli, &err);
    }
    tell(cli, exported);
    json_free(exported);
    return 0;
}
