/* SPDX-License-Identifier: Apache-2.0
 * A plain program, so that it also runs under ThreadSanitizer: the metrics are replaced while several scrapers read
 * them, and the server is stopped and started. Every answer is one complete text. */
#include "agent/metrics/metrics_http.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SCRAPERS   4
#define TEXT_BYTES 30000u
#define ROUNDS     5
#define TEXTS      200

static struct socket_address address;
static atomic_bool scraping;
static atomic_uint answers;

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "stress_metrics_http: %s\n", what);
        exit(1);
    }
}

static size_t ask(char *answer, size_t cap)
{
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    size_t len = 0;
    int fd = socket(address.socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (const struct sockaddr *)&address.socket, address.len) == 0 &&
        send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) > 0) {
        for (ssize_t got; len < cap && (got = recv(fd, answer + len, cap - len, 0)) > 0;) {
            len += (size_t)got;
        }
    }
    close(fd);
    return len;
}

static void *scrape(void *arg)
{
    (void)arg;
    char *answer = malloc(2 * TEXT_BYTES);
    require(answer != NULL, "out of memory");
    while (atomic_load(&scraping)) {
        size_t len = ask(answer, 2 * TEXT_BYTES);
        if (len < TEXT_BYTES || memcmp(answer, "HTTP/1.1 200", 12) != 0) {
            continue; /* there is none yet, or the server is being stopped */
        }
        const char *text = answer + len - TEXT_BYTES;
        for (size_t i = 1; i < TEXT_BYTES; i++) {
            require(text[i] == text[0], "an answer is of two texts");
        }
        atomic_fetch_add(&answers, 1);
    }
    free(answer);
    return NULL;
}

static void serve(struct metrics_http *http)
{
    for (int i = 0; i < TEXTS; i++) {
        char *text = malloc(TEXT_BYTES);
        require(text != NULL, "out of memory");
        memset(text, 'a' + i % 26, TEXT_BYTES);
        metrics_http_show(http, text, TEXT_BYTES);
        usleep(500);
    }
}

int main(void)
{
    struct metrics_http *http = NULL;
    pthread_t threads[SCRAPERS];
    struct error err = {0};
    for (int round = 0; round < ROUNDS; round++) {
        require(listen_address_parse(":0", &address, &err) == TCK_OK &&
                    metrics_http_start(&address, &http, &err) == TCK_OK &&
                    listen_address_parse(metrics_http_at(http), &address, &err) == TCK_OK,
                err.text);
        atomic_store(&scraping, true);
        for (int i = 0; i < SCRAPERS; i++) {
            require(pthread_create(&threads[i], NULL, scrape, NULL) == 0, "pthread_create");
        }
        serve(http);
        metrics_http_stop(http); /* while the scrapers send requests */
        atomic_store(&scraping, false);
        for (int i = 0; i < SCRAPERS; i++) {
            pthread_join(threads[i], NULL);
        }
    }
    require(atomic_load(&answers) > 0, "no answer ever came");
    printf("%u answers\n", atomic_load(&answers));
    return 0;
}
