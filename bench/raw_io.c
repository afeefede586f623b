/* SPDX-License-Identifier: Apache-2.0
 * The plain loops that storage is measured by. */
#include "raw_io.h"

#include "base/json.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REQUEST_BYTES (4 * MIB)
#define DEPTH         4

static int open_file(const char *path, int flags)
{
    int fd = open(path, flags | O_DIRECT | O_CLOEXEC, 0600);
    if (fd < 0) {
        bench_die("%s: %s", path, strerror(errno));
    }
    return fd;
}

static uint64_t submit(struct io_uring *ring, const struct raw_io *io, int fd, bool write, uint64_t at)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    uint64_t bytes = io->bytes - at < REQUEST_BYTES ? io->bytes - at : REQUEST_BYTES;
    char *data = (char *)io->data + at;
    if (write) {
        io_uring_prep_write(sqe, fd, data, (unsigned)bytes, at);
    } else {
        io_uring_prep_read(sqe, fd, data, (unsigned)bytes, at);
    }
    io_uring_sqe_set_data64(sqe, bytes);
    return at + bytes;
}

static void transfer(const struct raw_io *io, int fd, bool write)
{
    struct io_uring ring;
    int rc = io_uring_queue_init(DEPTH, &ring, 0);
    if (rc < 0) {
        bench_die("io_uring: %s", strerror(-rc));
    }
    uint64_t next = 0, done = 0, in_flight = 0;
    while (done < io->bytes) {
        for (; in_flight < DEPTH && next < io->bytes; in_flight++) {
            next = submit(&ring, io, fd, write, next);
        }
        struct io_uring_cqe *cqe;
        rc = io_uring_submit_and_wait(&ring, 1);
        rc = rc < 0 ? rc : io_uring_peek_cqe(&ring, &cqe);
        if (rc < 0 || cqe->res < 0 || (uint64_t)cqe->res != cqe->user_data) {
            bench_die("%s: a request failed or was short", io->path);
        }
        done += cqe->user_data;
        in_flight--;
        io_uring_cqe_seen(&ring, cqe);
    }
    io_uring_queue_exit(&ring);
}

void raw_write_keep(const struct raw_io *io, struct bench_go *go)
{
    bench_start(go);
    int fd = open_file(io->path, O_WRONLY | O_CREAT | O_EXCL);
    if (fallocate(fd, 0, 0, (off_t)io->bytes) != 0) {
        bench_die("%s: allocate: %s", io->path, strerror(errno));
    }
    transfer(io, fd, true);
    if (fdatasync(fd) != 0) {
        bench_die("%s: fdatasync: %s", io->path, strerror(errno));
    }
    bench_stop(go);
    close(fd);
}

void raw_write(void *ctx, struct bench_go *go)
{
    const struct raw_io *io = ctx;
    raw_write_keep(io, go);
    unlink(io->path);
}

void raw_read(void *ctx, struct bench_go *go)
{
    const struct raw_io *io = ctx;
    bench_start(go);
    int fd = open_file(io->path, O_RDONLY);
    transfer(io, fd, false);
    bench_stop(go);
    close(fd);
}

/* ---- fio ------------------------------------------------------------------------------------------------------- */

bool raw_fio_is_there(void)
{
    return system("fio --version >/dev/null 2>&1") == 0;
}

static double fio_bytes_per_second(const char *text, size_t len)
{
    json_t *json = NULL;
    double rate = 0;
    if (json_parse(text, len, &json, NULL) == TCK_OK) {
        const json_t *job = json_first(json_get(json, "jobs"));
        (void)json_f64(json_get(json_get(job, "write"), "bw_bytes"), &rate);
    }
    json_free(json);
    return rate;
}

void raw_fio(void *ctx, struct bench_go *go)
{
    const struct raw_io *io = ctx;
    char command[1024], text[65536];
    snprintf(command, sizeof(command),
             "fio --name=limit --filename='%s.fio' --size=%" PRIu64
             " --rw=write --bs=1M --ioengine=io_uring --iodepth=16 "
             "--direct=1 --end_fsync=1 --output-format=json 2>/dev/null",
             io->path, io->bytes);
    FILE *pipe = popen(command, "r");
    size_t len = pipe == NULL ? 0 : fread(text, 1, sizeof(text), pipe);
    int status = pipe == NULL ? -1 : pclose(pipe);
    double rate = fio_bytes_per_second(text, len);
    if (status != 0 || rate <= 0) {
        bench_die("fio failed");
    }
    *go = (struct bench_go){.seconds = (double)io->bytes / rate};
    snprintf(command, sizeof(command), "%s.fio", io->path);
    unlink(command);
}
