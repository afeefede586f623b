/* SPDX-License-Identifier: Apache-2.0
 * To be preloaded: the wall clock of the process is off by as many seconds as $WALL_OFFSET_FILE says, a 64-bit number,
 * at every moment. The monotonic clock is as it was. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void)
{
    const char *path = getenv("WALL_OFFSET_FILE");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*offset), PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) {
        close(fd);
    }
    offset = at == MAP_FAILED ? NULL : at;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t which, struct timespec *out)
{
    int rc = (int)syscall(SYS_clock_gettime, which, out);
    if (rc == 0 && offset != NULL && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        out->tv_sec += *offset;
    }
    return rc;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

__attribute__((visibility("default"))) time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) {
        *out = now.tv_sec;
    }
    return now.tv_sec;
}
