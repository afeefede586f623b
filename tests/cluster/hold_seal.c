/* SPDX-License-Identifier: Apache-2.0
 * This program's sendmsg and recvmsg, found by the library before those of libc. The frame: docs/formats.md. */
#include "hold_seal.h"
#include "base/seal.h"

#include <endian.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TYPE_OFFSET 4
#define TYPE_SEAL   7
#define TYPE_GRANT  70
#define STEP_OFFSET 4 /* after the sequence number */
#define HEAD_BYTES  16

#define INTO_COPY_NS 2000000

static uint64_t hold_every, spoil_every;
static const char *hold_file, *freeze_file;

void hold_seal(uint64_t every, const char *file)
{
    hold_every = every;
    hold_file = file;
}

void spoil_seal(uint64_t every)
{
    spoil_every = every;
}

/* The step of a SEAL, 0 of anything else. */
static uint64_t sealed_step(const struct msghdr *message)
{
    uint32_t type;
    uint64_t step;
    if (message->msg_iovlen != 2 || message->msg_iov[0].iov_len < TYPE_OFFSET + sizeof(type) ||
        message->msg_iov[1].iov_len != STEP_OFFSET + sizeof(step)) {
        return 0;
    }
    memcpy(&type, (const char *)message->msg_iov[0].iov_base + TYPE_OFFSET, sizeof(type));
    memcpy(&step, (const char *)message->msg_iov[1].iov_base + STEP_OFFSET, sizeof(step));
    return le32toh(type) == TYPE_SEAL ? le64toh(step) : 0;
}

static void wait_for_file(uint64_t step)
{
    char path[600];
    snprintf(path, sizeof(path), "%s.%" PRIu64, hold_file, step);
    if (access(path, F_OK) == 0) {
        return;
    }
    printf("HELD %" PRIu64 "\n", step);
    while (access(path, F_OK) != 0) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

static void spoil_page(struct seal *seals, uint64_t step)
{
    static const struct hash128 other = {.hi = 1, .lo = 2};
    for (size_t i = 0; i < SEALS_BYTES / sizeof(*seals); i++) {
        struct version version = seal_read(&seals[i]).version;
        if (version.step == step) {
            seal_set(&seals[i], version, &other);
        }
    }
}

/* Seals are a shared mapping of their size; others of that size bear none. */
static void spoil(uint64_t step)
{
    char line[512], rights[8];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        uintptr_t from, to;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &from, &to, rights) == 3 && to - from == SEALS_BYTES &&
            strcmp(rights, "rw-s") == 0) {
            spoil_page((struct seal *)from, step);
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
}

void freeze_in_copy(const char *file)
{
    freeze_file = file;
}

static void *freeze(void *ignored)
{
    (void)ignored;
    nanosleep(&(struct timespec){.tv_nsec = INTO_COPY_NS}, NULL);
    kill(getpid(), SIGSTOP);
    return NULL;
}

static bool is_grant(const struct msghdr *message, size_t len)
{
    uint8_t frame[HEAD_BYTES];
    size_t have = 0;
    for (size_t i = 0; i < message->msg_iovlen && have < sizeof(frame); i++) {
        size_t part = message->msg_iov[i].iov_len;
        part = part < sizeof(frame) - have ? part : sizeof(frame) - have;
        memcpy(frame + have, message->msg_iov[i].iov_base, part);
        have += part;
    }
    uint32_t type;
    memcpy(&type, frame + TYPE_OFFSET, sizeof(type));
    return len >= sizeof(frame) && have == sizeof(frame) && le32toh(type) == TYPE_GRANT;
}

__attribute__((visibility("default"))) ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    pthread_t thread;
    ssize_t len = syscall(SYS_recvmsg, fd, message, flags);
    bool granted = len > 0 && freeze_file != NULL && is_grant(message, (size_t)len);
    if (granted && unlink(freeze_file) == 0 && pthread_create(&thread, NULL, freeze, NULL) == 0) {
        pthread_detach(thread);
    }
    return len;
}

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    uint64_t step = hold_every + spoil_every > 0 ? sealed_step(message) : 0;
    if (step > 0 && spoil_every > 0 && step % spoil_every == 0) {
        spoil(step);
    }
    if (step > 0 && hold_every > 0 && step % hold_every == 0) {
        wait_for_file(step);
    }
    return syscall(SYS_sendmsg, fd, message, flags);
}
