/* SPDX-License-Identifier: Apache-2.0
 * tck_export: a version's model weights as one Hugging Face checkpoint. It is written slab by slab into a stage
 * beside its destination, synced, and then moved there as a whole. */
#include "base/progress.h"
#include "published/assemble.h"
#include "published/convert.h"
#include "published/drain_request.h"
#include "published/family_find.h"
#include "published/published.h"
#include "published/tiles.h"
#include "published/weights.h"
#include "tiers/safe_fs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLAB_BYTES ((size_t)ASSEMBLE_ELEMENTS * ASSEMBLE_WIDEST)
#define COPY_MAX   (1u << 30) /* of a file that is copied along */
#define INDEX_NAME "model.safetensors.index.json"

struct export
{
    const tck_export_params_t *params;
    struct tck_published *published;
    struct family_rules *rules; /* NULL: tensors keep their names */
    struct weights weights;
    struct assembler assembler;
    int parent_fd, stage_fd;
    char name[BENEATH_NAME_MAX + 1];  /* of the directory that is created */
    char stage[BENEATH_NAME_MAX + 1]; /* "": not created yet */
    uint8_t *slab, *turned;           /* SLAB_BYTES each */
    struct error *err;
};

/* ---- files ------------------------------------------------------------------------------------------------------- */

static tck_status_t write_all(int fd, const char *name, const void *data, size_t len, struct error *err)
{
    const uint8_t *at = data;
    while (len > 0) {
        ssize_t rc = write(fd, at, len);
        if (rc < 0 && errno == EINTR) {
            continue;
        }
        if (rc < 0) {
            return error_set(err, status_of_errno(errno), "write %s: %m", name);
        }
        at += rc;
        len -= (size_t)rc;
        progress_moved();
    }
    return TCK_OK;
}

static tck_status_t close_synced(int fd, const char *name, tck_status_t status, struct error *err)
{
    if (status == TCK_OK && fsync(fd) < 0) {
        status = error_set(err, status_of_errno(errno), "fsync %s: %m", name);
    }
    if (close(fd) < 0 && status == TCK_OK) {
        status = error_set(err, status_of_errno(errno), "close %s: %m", name);
    }
    return status;
}

static tck_status_t write_file(const struct export *x, const char *name, const void *data, size_t len)
{
    int fd = -1;
    tck_status_t status = safe_fs_open(x->stage_fd, name, O_WRONLY | O_CREAT | O_EXCL, &fd, x->err);
    if (status != TCK_OK) {
        return status;
    }
    status = write_all(fd, name, data, len, x->err);
    return close_synced(fd, name, status, x->err);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Rows of the weight, before it is transposed, into x->slab. They may be in several places of the whole tensor. */
static tck_status_t read_rows(const struct export *x, const struct weight *weight, const struct box *box)
{
    uint64_t first = box->at[0], left = box->size[0], written = 0, row = dtype_bytes(weight->dtype);
    tck_status_t status = TCK_OK;
    for (uint32_t d = 1; d < box->ndim; d++) {
        row *= box->size[d];
    }
    for (uint32_t i = 0; i < weight->as.count && left > 0 && status == TCK_OK; i++) {
        const struct rows *rows = &weight->as.rows[i];
        if (first >= rows->count) {
            first -= rows->count;
            continue;
        }
        struct box part = *box;
        part.at[0] = rows->from + first;
        part.size[0] = left < rows->count - first ? left : rows->count - first;
        status = assemble_read(&x->assembler, weight->whole, &part, weight->dtype, x->slab + written, x->err);
        written += part.size[0] * row;
        left -= part.size[0];
        first = 0;
    }
    return status;
}

/* A matrix of rows x columns elements as one of columns x rows. */
static void transpose(uint8_t *to, const uint8_t *from, uint64_t rows, uint64_t columns, size_t element)
{
    for (uint64_t r = 0; r < rows; r++) {
        for (uint64_t c = 0; c < columns; c++) {
            memcpy(to + (c * rows + r) * element, from + (r * columns + c) * element, element);
        }
    }
}

static tck_status_t write_slab(const struct export *x, const struct weight *weight, const struct box *box, int fd)
{
    const struct box turned = {2, {box->at[1], box->at[0]}, {box->size[1], box->size[0]}};
    const struct box *saved = weight->as.transposed ? &turned : box;
    size_t element = dtype_bytes(weight->dtype);
    tck_status_t status = box->ndim == 0
                              ? assemble_read(&x->assembler, weight->whole, box, weight->dtype, x->slab, x->err)
                              : read_rows(x, weight, saved);
    if (status != TCK_OK) {
        return status;
    }
    if (weight->as.transposed) {
        transpose(x->turned, x->slab, saved->size[0], saved->size[1], element);
    }
    return write_all(fd, weight->as.name, weight->as.transposed ? x->turned : x->slab, box_count(box) * element,
                     x->err);
}

static tck_status_t write_weight(const struct export *x, const struct weight *weight, int fd)
{
    struct tiles slabs = tiles_of(weight->as.box.size, weight->as.box.ndim, ASSEMBLE_ELEMENTS);
    struct box box;
    tck_status_t status = TCK_OK;
    while (status == TCK_OK && tiles_next(&slabs, &box)) {
        status = write_slab(x, weight, &box, fd);
    }
    return status;
}

static tck_status_t write_weights(const struct export *x, uint32_t file)
{
    char name[WEIGHTS_FILE_NAME];
    size_t len = 0;
    int fd = -1;
    weights_file_name(&x->weights, file, name);
    char *header = weights_header(&x->weights, file, &len);
    if (header == NULL) {
        return error_set(x->err, TCK_ERR_NOSPC, "the header of %s is too long, or there is no memory for it", name);
    }
    tck_status_t status = safe_fs_open(x->stage_fd, name, O_WRONLY | O_CREAT | O_EXCL, &fd, x->err);
    if (status == TCK_OK) {
        status = write_all(fd, name, header, len, x->err);
        for (uint32_t i = 0; i < x->weights.count && status == TCK_OK; i++) {
            if (x->weights.list[i].file == file) {
                status = write_weight(x, &x->weights.list[i], fd);
            }
        }
        status = close_synced(fd, name, status, x->err);
    }
    free(header);
    return status;
}

static tck_status_t write_index(const struct export *x)
{
    size_t len = 0;
    char *text = x->weights.file_count == 1 ? NULL : weights_index(&x->weights, &len);
    if (x->weights.file_count == 1) {
        return TCK_OK;
    }
    tck_status_t status = text == NULL ? error_set(x->err, TCK_ERR_NOMEM, "no memory for " INDEX_NAME)
                                       : write_file(x, INDEX_NAME, text, len);
    free(text);
    return status;
}

/* ---- files copied along ------------------------------------------------------------------------------------------ */

/* Other weights would be mistaken for the exported ones. */
static bool goes_along(const char *name)
{
    static const char *const weights[] = {".safetensors", ".index.json", ".bin",  ".pt",     ".pth",
                                          ".gguf",        ".h5",         ".onnx", ".msgpack"};
    size_t len = strlen(name);
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
        size_t end = strlen(weights[i]);
        if (len >= end && strcmp(name + len - end, weights[i]) == 0) {
            return false;
        }
    }
    return name[0] != '.';
}

static tck_status_t copy_one(const struct export *x, int from_fd, const char *name)
{
    struct stat st;
    char *data = NULL;
    size_t len = 0;
    if (!goes_along(name) || fstatat(from_fd, name, &st, 0) < 0 || !S_ISREG(st.st_mode)) {
        return TCK_OK;
    }
    int fd = openat(from_fd, name, O_RDONLY | O_CLOEXEC); /* a model cache has symbolic links here */
    if (fd < 0) {
        return error_set(x->err, status_of_errno(errno), "open %s: %m", name);
    }
    len = (size_t)st.st_size;
    data = len > COPY_MAX ? NULL : malloc(len + 1);
    tck_status_t status = TCK_OK;
    if (data == NULL) {
        status = error_set(x->err, TCK_ERR_NOSPC, "%s has %zu bytes: it is too large to be copied along", name, len);
    } else if (pread(fd, data, len, 0) != (ssize_t)len) {
        status = error_set(x->err, TCK_ERR_IO, "read %s: %m", name);
    } else {
        status = write_file(x, name, data, len);
    }
    free(data);
    close(fd);
    return status;
}

static tck_status_t copy_files(const struct export *x)
{
    const char *dir = x->params->model_files;
    struct names names = {0};
    if (dir == NULL) {
        return TCK_OK;
    }
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return error_set(x->err, status_of_errno(errno), "open directory %.200s: %m", dir);
    }
    tck_status_t status = safe_fs_list(fd, &names, x->err);
    for (size_t i = 0; i < names.count && status == TCK_OK; i++) {
        status = copy_one(x, fd, names.names[i]);
    }
    names_free(&names);
    close(fd);
    return status == TCK_OK ? TCK_OK : error_prefix(x->err, "%.200s", dir);
}

/* ---- the directory ----------------------------------------------------------------------------------------------- */

/* Sets parent_fd and name, for a directory that does not exist yet. */
static tck_status_t find_place(struct export *x)
{
    char path[CONFIG_PATH], again[CONFIG_PATH];
    struct stat st;
    if (strlen(x->params->directory) >= sizeof(path)) {
        return error_set(x->err, TCK_ERR_INVAL, "the path of the export is too long");
    }
    strcpy(path, x->params->directory);
    strcpy(again, x->params->directory);
    const char *name = basename(again), *parent = dirname(path);
    x->parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (x->parent_fd < 0) {
        return error_set(x->err, status_of_errno(errno), "open directory %.200s: %m", parent);
    }
    if (fstatat(x->parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        return error_set(x->err, TCK_ERR_EXIST, "%.200s is there already", x->params->directory);
    }
    snprintf(x->name, sizeof(x->name), "%s", name);
    return TCK_OK;
}

static tck_status_t make_stage(struct export *x)
{
    char stage[BENEATH_NAME_MAX + 1];
    tck_status_t status = safe_fs_part_name(x->name, stage, x->err);
    if (status == TCK_OK) {
        status = safe_fs_make_dir(x->parent_fd, stage, &x->stage_fd, x->err);
    }
    if (status == TCK_OK) {
        strcpy(x->stage, stage);
    }
    return status;
}

static tck_status_t fill_stage(const struct export *x)
{
    tck_status_t status = TCK_OK;
    for (uint32_t i = 0; i < x->weights.file_count && status == TCK_OK; i++) {
        status = write_weights(x, i);
    }
    if (status == TCK_OK) {
        status = write_index(x);
    }
    if (status == TCK_OK) {
        status = copy_files(x);
    }
    return status == TCK_OK ? safe_fs_sync(x->stage_fd, x->err) : status;
}

static tck_status_t move_there(struct export *x)
{
    tck_status_t status = safe_fs_move_dir(x->parent_fd, x->stage, x->parent_fd, x->name, x->err);
    if (status == TCK_OK) {
        x->stage[0] = '\0';
        status = safe_fs_sync(x->parent_fd, x->err);
    }
    return status;
}

/* Removes what a failed export has written. Best effort: the earlier error is the one to report. */
static void remove_stage(const struct export *x)
{
    struct names names = {0};
    if (x->stage[0] == '\0' || safe_fs_list(x->stage_fd, &names, NULL) != TCK_OK) {
        return;
    }
    for (size_t i = 0; i < names.count; i++) {
        unlinkat(x->stage_fd, names.names[i], 0);
    }
    unlinkat(x->parent_fd, x->stage, AT_REMOVEDIR);
    names_free(&names);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static tck_status_t check_params(const tck_export_params_t *params, struct error *err)
{
    if (params->struct_size < sizeof(*params)) {
        return error_set(err, TCK_ERR_INVAL, "struct_size of the parameters is %zu, %zu is needed", params->struct_size,
                         sizeof(*params));
    }
    if (params->directory == NULL || params->source == NULL) {
        return error_set(err, TCK_ERR_INVAL, "an export needs a source and a directory");
    }
    if (params->convert && !convert_can(params->dtype)) {
        return error_set(err, TCK_ERR_INVAL, "weights can be exported as F64, F32, F16 or BF16");
    }
    return TCK_OK;
}

static tck_status_t open_source(struct export *x)
{
    tck_published_open_params_t source = *x->params->source;
    tck_status_t status = TCK_OK;
    if (x->params->from_memory) {
        status = drain_request_publish(&source, &source.step, x->err);
    }
    if (status == TCK_OK) {
        status = tck_published_open(&source, &x->published);
        if (status != TCK_OK) {
            (void)error_set(x->err, status, "%s", tck_published_errmsg(NULL));
        }
    }
    return status;
}

/* Compares what several ranks hold of the same tensor. */
static tck_status_t check_copies(const struct export *x)
{
    const struct wholes *wholes = &x->weights.wholes;
    tck_status_t status = TCK_OK;
    for (uint32_t i = 0; i < wholes->count && status == TCK_OK; i++) {
        status = assemble_check(&x->assembler, &wholes->list[i], x->err);
    }
    return status;
}

static tck_status_t make_buffers(struct export *x)
{
    x->slab = malloc(SLAB_BYTES);
    x->turned = malloc(SLAB_BYTES);
    if (x->slab == NULL || x->turned == NULL) {
        return error_set(x->err, TCK_ERR_NOMEM, "no memory for slabs of %zu bytes", SLAB_BYTES);
    }
    return assemble_begin(&x->assembler, x->published, x->err);
}

/* Whatever is wrong with the version or the mapping is found here, before anything is written. */
static tck_status_t prepare(struct export *x)
{
    tck_status_t status = find_place(x);
    if (status == TCK_OK && x->params->names != NULL) {
        status = family_load(x->params->names, &x->rules, x->err);
    }
    if (status == TCK_OK) {
        status = open_source(x);
    }
    if (status == TCK_OK) {
        status = weights_choose(x->published, x->params, x->rules, &x->weights, x->err);
    }
    if (status == TCK_OK) {
        status = make_buffers(x);
    }
    if (status == TCK_OK) {
        status = check_copies(x);
    }
    return status == TCK_OK ? make_stage(x) : status;
}

static void end(struct export *x)
{
    remove_stage(x);
    if (x->stage_fd >= 0) {
        close(x->stage_fd);
    }
    if (x->parent_fd >= 0) {
        close(x->parent_fd);
    }
    weights_free(&x->weights);
    family_free(x->rules);
    assemble_end(&x->assembler);
    tck_published_close(x->published);
    free(x->slab);
    free(x->turned);
}

tck_status_t tck_export(const tck_export_params_t *params, tck_exported_t *exported_out)
{
    struct error err = {0};
    struct export x = {.params = params, .parent_fd = -1, .stage_fd = -1, .err = &err};
    tck_status_t status =
        params == NULL ? error_set(&err, TCK_ERR_INVAL, "tck_export: params is NULL") : check_params(params, &err);
    if (status == TCK_OK && exported_out != NULL && exported_out->struct_size < sizeof(*exported_out)) {
        status = error_set(&err, TCK_ERR_INVAL, "struct_size of the result is %zu, %zu is needed",
                           exported_out->struct_size, sizeof(*exported_out));
    }
    if (status == TCK_OK) {
        status = prepare(&x);
    }
    if (status == TCK_OK) {
        status = fill_stage(&x);
    }
    if (status == TCK_OK) {
        status = move_there(&x);
    }
    if (status == TCK_OK && exported_out != NULL) {
        const struct version version = x.published->found.manifest.version;
        exported_out->version = (tck_version_t){version.term, version.step};
        exported_out->tensor_count = x.weights.count;
        exported_out->file_count = x.weights.file_count;
        exported_out->bytes = x.weights.bytes;
    }
    end(&x);
    if (status != TCK_OK) {
        published_set_error(&err);
    }
    return status;
}
