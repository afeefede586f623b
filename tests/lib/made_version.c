/* SPDX-License-Identifier: Apache-2.0
 * See made_version.h. */
#include "made_version.h"

#include "base/digest.h"
#include "base/image_check.h"
#include "tiers/names.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "made_version: %s\n", what);
        abort();
    }
}

static void write_file(int dir_fd, const char *name, const void *data, size_t len)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    require(fd >= 0 && write(fd, data, len) == (ssize_t)len, name);
    close(fd);
}

void made_version_begin(struct made_version *made, const char *job_dir, struct version version, uint32_t world_size)
{
    char name[DIR_NAME_MAX], path[500];
    const char *job = strrchr(job_dir, '/');

    require(job != NULL, job_dir);
    *made = (struct made_version){.manifest = {.version = version, .world_size = world_size, .wall_ms = 5}};
    snprintf(made->manifest.job, sizeof(made->manifest.job), "%s", job + 1);
    version_dir_name(version, name);
    snprintf(path, sizeof(path), "%s/%s", job_dir, name);
    require(mkdir(path, 0755) == 0, path);
    made->dir_fd = open(path, O_RDONLY | O_DIRECTORY);
    require(made->dir_fd >= 0, path);
}

static void add_file(struct made_version *made, const struct layout *layout, const struct shard *shard)
{
    struct manifest *manifest = &made->manifest;
    struct manifest_file file = {.shard = shard->id, .bytes = shard->image_bytes};
    uint8_t *image = calloc(1, shard->image_bytes);

    file.crcs = calloc(chunk_count(file.bytes), sizeof(*file.crcs));
    manifest->files = reallocarray(manifest->files, manifest->file_count + 1, sizeof(file));
    require(image != NULL && file.crcs != NULL && manifest->files != NULL, "no memory");
    memcpy(image, shard->header, shard->header_bytes);
    for (uint32_t i = 0; i < shard->record_count; i++) {
        const struct record *record = &layout->records[shard->records[i]];

        memcpy(image + record->image_offset, record->addr, record->bytes);
    }
    file.root = digest_image(image, file.bytes, file.crcs);
    manifest_file_name(file.shard, file.name);
    write_file(made->dir_fd, file.name, image, file.bytes);
    free(image);
    manifest->files[manifest->file_count++] = file;
}

static int compare_files(const void *a, const void *b)
{
    return hash128_cmp(((const struct manifest_file *)a)->shard, ((const struct manifest_file *)b)->shard);
}

void made_version_add(struct made_version *made, const struct layout *layout)
{
    struct manifest *manifest = &made->manifest;

    for (uint32_t i = 0; i < layout->shard_count; i++) {
        if (manifest_find(manifest, layout->shards[i].id) == NULL) {
            add_file(made, layout, &layout->shards[i]);
        }
    }
    qsort(manifest->files, manifest->file_count, sizeof(*manifest->files), compare_files);
}

/* Appends the header of a file to *index, and returns the new length of that. */
static size_t append_header(int dir_fd, const struct manifest_file *file, uint8_t **index, size_t len)
{
    uint8_t prefix[sizeof(uint64_t)];
    uint64_t bytes = 0;
    int fd = openat(dir_fd, file->name, O_RDONLY);

    require(fd >= 0 && pread(fd, prefix, sizeof(prefix), 0) == (ssize_t)sizeof(prefix), file->name);
    require(image_header_bytes(prefix, sizeof(prefix), file->bytes, &bytes, NULL) == TCK_OK, file->name);
    *index = realloc(*index, len + bytes);
    require(*index != NULL && pread(fd, *index + len, bytes, 0) == (ssize_t)bytes, file->name);
    close(fd);
    return len + bytes;
}

void made_version_index(struct made_version *made)
{
    struct manifest_file *file = &made->manifest.index;
    uint8_t *index = NULL;

    for (uint32_t i = 0; i < made->manifest.file_count; i++) {
        file->bytes = append_header(made->dir_fd, &made->manifest.files[i], &index, file->bytes);
    }
    file->crcs = calloc(chunk_count(file->bytes), sizeof(*file->crcs));
    require(file->crcs != NULL, "no memory");
    file->root = digest_image(index, file->bytes, file->crcs);
    write_file(made->dir_fd, VERSION_INDEX_NAME, index, file->bytes);
    free(index);
}

void made_version_end(struct made_version *made)
{
    char *text = NULL;
    size_t len = 0;

    require(manifest_print(&made->manifest, &text, &len, NULL) == TCK_OK, "manifest_print");
    write_file(made->dir_fd, MANIFEST_NAME, text, len);
    free(text);
    manifest_free(&made->manifest);
    close(made->dir_fd);
}
