/* SPDX-License-Identifier: Apache-2.0
 * RESHARD: what ranks of another layout ask of storage to find and read their pieces, while the version has more and
 * more shards and each rank needs as many as before. */
#include "bench.h"

#include "base/layout.h"
#include "client/shared_headers.h"
#include "tiers/names.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RANKS       8 /* that read */
#define NEEDED      4 /* shards that each of them needs */
#define SHARD_BYTES (16 * MIB)
#define ROW_BYTES   (SHARD_BYTES - 4096) /* the header has the rest */

/* ---- what is asked of storage ---------------------------------------------------------------------------------- */

static atomic_uint_fast64_t lookups; /* names that are opened or looked at; a listing opens its directory */
static atomic_uint_fast64_t bytes_read;

int __real_openat(int dir_fd, const char *name, int flags, ...);
int __wrap_openat(int dir_fd, const char *name, int flags, mode_t mode);
int __real_fstatat(int dir_fd, const char *name, struct stat *out, int flags);
int __wrap_fstatat(int dir_fd, const char *name, struct stat *out, int flags);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
ssize_t __real_read(int fd, void *data, size_t len);
ssize_t __wrap_read(int fd, void *data, size_t len);
ssize_t __real_pread(int fd, void *data, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t len, off_t at);

int __wrap_openat(int dir_fd, const char *name, int flags, mode_t mode)
{
    lookups++;
    return __real_openat(dir_fd, name, flags, mode);
}

int __wrap_fstatat(int dir_fd, const char *name, struct stat *out, int flags)
{
    lookups++;
    return __real_fstatat(dir_fd, name, out, flags);
}

/* NOLINTNEXTLINE(readability-function-size): as the system has it */
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    lookups += number == SYS_openat2;
    return __real_syscall(number, a, b, c, d, e, f);
}

ssize_t __wrap_read(int fd, void *data, size_t len)
{
    ssize_t rc = __real_read(fd, data, len);
    bytes_read += rc > 0 ? (uint64_t)rc : 0;
    return rc;
}

ssize_t __wrap_pread(int fd, void *data, size_t len, off_t at)
{
    ssize_t rc = __real_pread(fd, data, len, at);
    bytes_read += rc > 0 ? (uint64_t)rc : 0;
    return rc;
}

/* ---- versions: a row for each shard, all zero, so that the files take no room ----------------------------------- */

struct made {
    struct manifest manifest;
    char dir[700];
};

static void write_new(const struct made *made, const char *name, const void *data, size_t len, uint64_t size)
{
    char path[900];
    snprintf(path, sizeof(path), "%s/%s", made->dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, data, len) != (ssize_t)len || ftruncate(fd, (off_t)size) != 0) {
        bench_die("%s cannot be written: %m", path);
    }
    close(fd);
}

static tck_record_t row_of(uint32_t row, uint32_t rows)
{
    static uint8_t nothing;
    return (tck_record_t){.struct_size = sizeof(tck_record_t),
                          .key = "rows",
                          .dtype = TCK_U8,
                          .ndim = 2,
                          .global_shape = {rows, ROW_BYTES},
                          .offset = {row},
                          .local_shape = {1, ROW_BYTES},
                          .addr = &nothing}; /* a layout does not read it */
}

static void describe(struct manifest_file *file, const struct shard *shard)
{
    static uint8_t chunk[CHUNK_BYTES];
    *file = (struct manifest_file){.shard = shard->id, .bytes = shard->image_bytes};
    file->crcs = bench_alloc(chunk_count(file->bytes) * sizeof(*file->crcs));
    memset(chunk, 0, sizeof(chunk));
    for (uint32_t i = 1; i < chunk_count(file->bytes); i++) {
        file->crcs[i] = i > 1 ? file->crcs[1] : crc32c(0, chunk, chunk_size(file->bytes, i));
    }
    memcpy(chunk, shard->header, shard->header_bytes);
    file->crcs[0] = crc32c(0, chunk, chunk_size(file->bytes, 0));
    file->root = digest_root(file->crcs, file->bytes);
    manifest_file_name(file->shard, file->name);
}

static void add_shard(struct made *made, uint32_t row, uint32_t rows)
{
    struct layout layout = {0};
    struct error err = {0};
    tck_record_t record = row_of(row, rows);
    bench_check(layout_add(&layout, &record, NULL, &err), &err, "record");
    bench_check(layout_build(&layout, row, rows, &err), &err, "layout");
    const struct shard *shard = &layout.shards[0];
    struct manifest_file *file = &made->manifest.files[made->manifest.file_count++];
    if (shard->image_bytes != SHARD_BYTES) {
        bench_die("a shard has %" PRIu64 " bytes", shard->image_bytes);
    }
    describe(file, shard);
    write_new(made, file->name, shard->header, shard->header_bytes, file->bytes);
    layout_free(&layout);
}

static int compare_files(const void *a, const void *b)
{
    return hash128_cmp(((const struct manifest_file *)a)->shard, ((const struct manifest_file *)b)->shard);
}

static void add_index(struct made *made)
{
    struct manifest *m = &made->manifest;
    struct manifest_file *index = &m->index;
    uint8_t *bytes = bench_alloc((size_t)m->file_count * (SHARD_BYTES - ROW_BYTES));
    for (uint32_t i = 0; i < m->file_count; i++) {
        char path[900];
        snprintf(path, sizeof(path), "%s/%s", made->dir, m->files[i].name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        size_t len = SHARD_BYTES - ROW_BYTES;
        if (fd < 0 || pread(fd, bytes + index->bytes, len, 0) != (ssize_t)len) {
            bench_die("%s cannot be read: %m", path);
        }
        close(fd);
        index->bytes += len;
    }
    index->crcs = bench_alloc(chunk_count(index->bytes) * sizeof(*index->crcs));
    index->root = digest_image(bytes, index->bytes, index->crcs);
    write_new(made, VERSION_INDEX_NAME, bytes, index->bytes, index->bytes);
    free(bytes);
}

static void make_version(const char *job, struct version version, uint32_t shards, bool indexed)
{
    struct made made = {.manifest = {.job = "job", .version = version, .world_size = shards, .wall_ms = 1}};
    struct error err = {0};
    char name[DIR_NAME_MAX], *text;
    size_t len;
    version_dir_name(version, name);
    snprintf(made.dir, sizeof(made.dir), "%s/%s", job, name);
    if (mkdir(made.dir, 0755) != 0) {
        bench_die("%s cannot be made: %m", made.dir);
    }
    made.manifest.files = bench_alloc(shards * sizeof(*made.manifest.files));
    for (uint32_t i = 0; i < shards; i++) {
        add_shard(&made, i, shards);
    }
    qsort(made.manifest.files, shards, sizeof(*made.manifest.files), compare_files);
    if (indexed) {
        add_index(&made);
    }
    bench_check(manifest_print(&made.manifest, &text, &len, &err), &err, "manifest");
    write_new(&made, MANIFEST_NAME, text, len, len);
    free(text);
    manifest_free(&made.manifest);
}

/* ---- ranks ----------------------------------------------------------------------------------------------------- */

static pthread_barrier_t barrier;
static uint8_t *gathered;

struct rank {
    struct oob oob;
    pthread_t thread;
    const struct bench *bench;
    struct version version;
    uint32_t shards;
    tck_status_t status;
    struct error err;
};

static int gather(void *ctx, const void *mine, void *all, size_t len)
{
    const struct rank *rank = ctx;
    if (rank->oob.rank == 0) {
        gathered = bench_alloc(RANKS * len);
    }
    pthread_barrier_wait(&barrier);
    memcpy(gathered + rank->oob.rank * len, mine, len);
    pthread_barrier_wait(&barrier);
    memcpy(all, gathered, RANKS * len);
    if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
        free(gathered);
    }
    pthread_barrier_wait(&barrier);
    return 0;
}

static tck_status_t read_rows(const struct rank *rank, tck_published_t *published)
{
    uint8_t *row = bench_alloc(ROW_BYTES);
    tck_status_t status = TCK_OK;
    for (uint32_t i = 0; i < NEEDED && status == TCK_OK; i++) {
        const tck_record_t record = row_of((rank->oob.rank * NEEDED + i) % rank->shards, rank->shards);
        tck_published_box_t box = {
            .struct_size = sizeof(box), .key = record.key, .dtype = record.dtype, .ndim = record.ndim};
        memcpy(box.global_shape, record.global_shape, sizeof(box.global_shape));
        memcpy(box.offset, record.offset, sizeof(box.offset));
        memcpy(box.local_shape, record.local_shape, sizeof(box.local_shape));
        status = tck_published_read_box(published, &box, row);
    }
    free(row);
    return status;
}

static void *run_rank(void *ctx)
{
    struct rank *rank = ctx;
    struct config config;
    struct tck_published *published = NULL;
    rank->status = config_defaults(&config, &rank->err);
    snprintf(config.save_dir, sizeof(config.save_dir), "%s", rank->bench->dir);
    snprintf(config.job, sizeof(config.job), "job");
    if (rank->status == TCK_OK) {
        rank->status = published_begin(&config, rank->version, true, &published, &rank->err);
    }
    rank->status = shared_headers_read(&rank->oob, rank->status, published, &rank->err);
    if (rank->status == TCK_OK) {
        rank->status = read_rows(rank, published);
        rank->err = rank->status == TCK_OK ? rank->err : published->error;
    }
    tck_published_close(published);
    return NULL;
}

struct asked {
    double lookups; /* for each shard that a rank needs */
    double bytes;   /* for each byte that it needs */
};

static struct asked reshard(const struct bench *bench, struct version version, uint32_t shards)
{
    static struct rank ranks[RANKS];
    pthread_barrier_init(&barrier, NULL, RANKS);
    lookups = bytes_read = 0;
    for (uint32_t r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){.bench = bench, .version = version, .shards = shards};
        ranks[r].oob = (struct oob){.rank = r, .world_size = RANKS};
        ranks[r].oob.caller = (tck_oob_t){.ctx = &ranks[r], .allgather = gather};
        if (pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]) != 0) {
            bench_die("no thread for a rank");
        }
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        pthread_join(ranks[r].thread, NULL);
        bench_check(ranks[r].status, &ranks[r].err, "reshard");
    }
    pthread_barrier_destroy(&barrier);
    return (struct asked){(double)lookups / (RANKS * NEEDED),
                          (double)bytes_read / ((double)RANKS * NEEDED * SHARD_BYTES)};
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

static void print_rows(uint32_t shards, const struct asked *with, const struct asked *without)
{
    char id[64], what[160];
    snprintf(id, sizeof(id), "RESHARD.%" PRIu32 ".lookups", shards);
    snprintf(what, sizeof(what), "names looked at for each of the %d of %" PRIu32 " shards that a rank needs", NEEDED,
             shards);
    bench_print(&(struct bench_row){.id = id,
                                    .what = what,
                                    .unit = "calls per shard",
                                    .value = {with->lookups, 0},
                                    .goal = 4,
                                    .rounds = 1,
                                    .reference = "the same version without .index",
                                    .reference_value = without->lookups,
                                    .reference_unit = "calls per shard"});
    snprintf(id, sizeof(id), "RESHARD.%" PRIu32 ".bytes", shards);
    snprintf(what, sizeof(what), "bytes read to find and read once %d of %" PRIu32 " shards of %d MiB", NEEDED, shards,
             (int)(SHARD_BYTES / MIB));
    bench_print(&(struct bench_row){.id = id,
                                    .what = what,
                                    .unit = "x the bytes needed",
                                    .value = {with->bytes, 0},
                                    .goal = 1.1,
                                    .rounds = 1,
                                    .reference = "the same version without .index",
                                    .reference_value = without->bytes,
                                    .reference_unit = "x the bytes needed"});
}

static void bench_reshard(const struct bench *bench)
{
    static const uint32_t shards[] = {16, 64, 256, 1024};
    char job[600];
    snprintf(job, sizeof(job), "%s/job", bench->dir);
    if (mkdir(job, 0755) != 0) {
        bench_die("%s cannot be made: %m", job);
    }
    for (uint32_t i = 0; i < sizeof(shards) / sizeof(*shards); i++) {
        const struct version with = {1, 2 * i + 1}, without = {1, 2 * i + 2};
        make_version(job, with, shards[i], true);
        make_version(job, without, shards[i], false);
        const struct asked of[2] = {reshard(bench, with, shards[i]), reshard(bench, without, shards[i])};
        print_rows(shards[i], &of[0], &of[1]);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_entry entries[] = {{"RESHARD", bench_reshard}};
    return bench_main(argc, argv, entries, 1);
}
