/* SPDX-License-Identifier: Apache-2.0
 * A network cable that can be made bad: cable SPACE_A NAME_A SPACE_B NAME_B
 * Makes an Ethernet interface in each of two network namespaces (files below /run/netns) and carries frames between
 * them. Prints "ready", then takes lines from standard input,
 *     LOSS DOUBLE REORDER CORRUPT (in 1/100000 of the frames) DELAY (in ms) SEED
 * until that ends. A corrupted frame has its TCP checksum repaired, so that the damage arrives; only full frames are
 * corrupted, which carry bulk data. */
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define FRAME_BYTES   2048 /* of an MTU of 1500 */
#define FULL_BYTES    1400
#define WAITING       4096
#define REORDER_MS    8
#define FRAMES_A_TURN 64
#define IP_AT         14
#define ETHERTYPE_AT  12
#define PROTOCOL_AT   (IP_AT + 9)
#define TCP           6

enum { LOSS, DOUBLE, REORDER, CORRUPT, DELAY, SEED, KNOBS };

struct frame {
    int to; /* descriptor; 0: none */
    uint64_t due_ms;
    size_t len;
    unsigned char bytes[FRAME_BYTES];
};

struct cable {
    int end[2];
    unsigned long knobs[KNOBS];
    uint64_t random;
    struct frame *waiting; /* WAITING of them */
    size_t waits;          /* so many are in use */
};

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t chance(struct cable *c, uint64_t below)
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return c->random % below;
}

static int happens(struct cable *c, int knob)
{
    return c->knobs[knob] != 0 && chance(c, 100000) < c->knobs[knob];
}

static int open_end(const char *space, const char *name)
{
    char path[256];
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    snprintf(path, sizeof(path), "/run/netns/%s", space);
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    int space_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (space_fd < 0 || setns(space_fd, CLONE_NEWNET) != 0) {
        return -1;
    }
    close(space_fd);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0 ? fd : -1;
}

/* One bit of the payload, and the checksum so that it matches again (RFC 1624, equation 3). */
static void corrupt(struct cable *c, unsigned char *bytes, size_t len)
{
    size_t tcp_at = IP_AT + (size_t)(bytes[IP_AT] & 15) * 4;
    if (bytes[ETHERTYPE_AT] != 8 || bytes[ETHERTYPE_AT + 1] != 0 || bytes[PROTOCOL_AT] != TCP || len < FULL_BYTES) {
        return;
    }
    size_t payload_at = tcp_at + (size_t)(bytes[tcp_at + 12] >> 4) * 4;
    size_t at = payload_at + chance(c, len - payload_at);
    size_t word_at = at - (at - tcp_at) % 2;
    if (word_at + 1 >= len) {
        return;
    }
    uint32_t before = (uint32_t)bytes[word_at] << 8 | bytes[word_at + 1];
    bytes[at] ^= (unsigned char)(1u << chance(c, 8));
    uint32_t after = (uint32_t)bytes[word_at] << 8 | bytes[word_at + 1];
    uint32_t sum = (uint32_t)bytes[tcp_at + 16] << 8 | bytes[tcp_at + 17];
    sum = (~sum & 0xffff) + (~before & 0xffff) + after;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
    bytes[tcp_at + 16] = (unsigned char)(sum >> 8);
    bytes[tcp_at + 17] = (unsigned char)sum;
}

static void put(int to, const unsigned char *bytes, size_t len)
{
    ssize_t written = write(to, bytes, len);
    (void)written; /* a frame that finds no room is lost, as on any cable */
}

static void later(struct cable *c, int to, const unsigned char *bytes, size_t len, uint64_t delay_ms)
{
    for (struct frame *f = c->waiting; f < c->waiting + WAITING; f++) {
        if (f->to == 0) {
            f->to = to;
            f->due_ms = now_ms() + delay_ms;
            f->len = len;
            memcpy(f->bytes, bytes, len);
            c->waits++;
            return;
        }
    }
}

static void carry(struct cable *c, int from, int to)
{
    unsigned char bytes[FRAME_BYTES];
    for (int i = 0; i < FRAMES_A_TURN; i++) {
        ssize_t len = read(from, bytes, sizeof(bytes));
        if (len <= 0) {
            return;
        }
        if (happens(c, LOSS)) {
            continue;
        }
        if (happens(c, CORRUPT)) {
            corrupt(c, bytes, (size_t)len);
        }
        uint64_t delay_ms = c->knobs[DELAY] + (happens(c, REORDER) ? 1 + chance(c, REORDER_MS) : 0);
        for (int copies = happens(c, DOUBLE) ? 2 : 1; copies > 0; copies--) {
            if (delay_ms == 0) {
                put(to, bytes, (size_t)len);
            } else {
                later(c, to, bytes, (size_t)len, delay_ms);
            }
        }
    }
}

/* Sends what is due; returns milliseconds until the next is, -1 if nothing waits. */
static int send_due(struct cable *c)
{
    uint64_t now = now_ms(), next = UINT64_MAX;
    if (c->waits == 0) {
        return -1;
    }
    for (struct frame *f = c->waiting; f < c->waiting + WAITING; f++) {
        if (f->to != 0 && f->due_ms <= now) {
            put(f->to, f->bytes, f->len);
            f->to = 0;
            c->waits--;
        } else if (f->to != 0 && f->due_ms < next) {
            next = f->due_ms;
        }
    }
    return next == UINT64_MAX ? -1 : (int)(next - now);
}

/* 0 when the driver is gone. */
static int take_order(struct cable *c)
{
    char line[256];
    ssize_t len = read(STDIN_FILENO, line, sizeof(line) - 1);
    if (len <= 0) {
        return 0;
    }
    line[len] = '\0';
    char *at = line;
    for (int i = 0; i < KNOBS; i++) {
        c->knobs[i] = strtoul(at, &at, 10);
    }
    c->random = c->knobs[SEED] * 2 + 1;
    return 1;
}

int main(int argc, char **argv)
{
    struct cable c = {.random = 1, .waiting = calloc(WAITING, sizeof(struct frame))};
    if (argc != 5 || c.waiting == NULL) {
        return 2;
    }
    for (int i = 0; i < 2; i++) {
        c.end[i] = open_end(argv[1 + 2 * i], argv[2 + 2 * i]);
        if (c.end[i] < 0) {
            perror(argv[2 + 2 * i]);
            return 1;
        }
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                               {.fd = c.end[0], .events = POLLIN},
                               {.fd = c.end[1], .events = POLLIN}};
        if (poll(fds, 3, send_due(&c)) < 0 || (fds[0].revents != 0 && !take_order(&c))) {
            free(c.waiting);
            return 0;
        }
        for (int i = 0; i < 2; i++) {
            if (fds[1 + i].revents & POLLIN) {
                carry(&c, c.end[i], c.end[1 - i]);
            }
        }
    }
}
