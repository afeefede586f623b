/* SPDX-License-Identifier: Apache-2.0
 * A server of HTTP for tests. */
#include "http_fake.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct fake {
    int fd;
    http_fake_fn *answer;
};

/* Until the header and as much of a body as it says have come. */
static void read_request(int fd, char *text, size_t cap)
{
    size_t len = 0;
    for (;;) {
        text[len] = '\0';
        const char *end = strstr(text, "\r\n\r\n"), *length = strcasestr(text, "content-length:");
        if (end != NULL && strlen(end + 4) >= (size_t)(length == NULL ? 0 : atol(length + 15))) {
            return;
        }
        ssize_t n = read(fd, text + len, cap - 1 - len);
        if (n <= 0) {
            return;
        }
        len += (size_t)n;
    }
}

static void *serve(void *ctx)
{
    static char text[1 << 20];
    struct fake *fake = ctx;
    for (;;) {
        int fd = accept(fake->fd, NULL, NULL);
        if (fd < 0) {
            return NULL;
        }
        read_request(fd, text, sizeof(text));
        const char *answer = fake->answer(text);
        if (write(fd, answer, strlen(answer)) < 0) {
            perror("http_fake");
        }
        close(fd);
    }
}

void http_fake_start(http_fake_fn *answer, char url[64])
{
    static struct fake fake;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    pthread_t thread;
    fake = (struct fake){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .answer = answer};
    if (fake.fd < 0 || bind(fake.fd, (struct sockaddr *)&address, len) != 0 || listen(fake.fd, 16) != 0 ||
        getsockname(fake.fd, (struct sockaddr *)&address, &len) != 0 ||
        pthread_create(&thread, NULL, serve, &fake) != 0) {
        perror("http_fake");
        abort();
    }
    pthread_detach(thread);
    snprintf(url, 64, "http://127.0.0.1:%u", ntohs(address.sin_port));
}
