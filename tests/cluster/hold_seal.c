/* SPDX-License-Identifier: Apache-2.0
 * This program's sendmsg, found by the library before that of libc. The frame: docs/formats.md. */
#include "hold_seal.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TYPE_OFFSET 4
#define TYPE_SEAL   7
#define STEP_OFFSET 4 /* after the sequence number */

static uint64_t hold_every;
static const char *hold_file;

void hold_seal(uint64_t every, const char *file)
{
    hold_every = every;
    hold_file = file;
}

/* The step of a SEAL, 0 of anything else. */
static uint64_t sealed_step(const struct msghdr *message)
{
    uint32_t type;
    uint64_t step;
    if (message->msg_iovlen != 2 || message->msg_iov[0].iov_len < TYPE_OFFSET + sizeof type ||
        message->msg_iov[1].iov_len != STEP_OFFSET + sizeof step) {
        return 0;
    }
    memcpy(&type, (const char *)message->msg_iov[0].iov_base + TYPE_OFFSET, sizeof type);
    memcpy(&step, (const char *)message->msg_iov[1].iov_base + STEP_OFFSET, sizeof step);
    return le32toh(type) == TYPE_SEAL ? le64toh(step) : 0;
}

static void wait_for_file(uint64_t step)
{
    char path[600];
    snprintf(path, sizeof path, "%s.%llu", hold_file, (unsigned long long)step);
    if (access(path, F_OK) == 0) {
        return;
    }
    printf("HELD %llu\n", (unsigned long long)step);
    while (access(path, F_OK) != 0) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    uint64_t step = hold_every > 0 ? sealed_step(message) : 0;
    if (step > 0 && step % hold_every == 0) {
        wait_for_file(step);
    }
    return syscall(SYS_sendmsg, fd, message, flags);
}
