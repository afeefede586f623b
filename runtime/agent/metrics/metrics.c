/* SPDX-License-Identifier: Apache-2.0
 * Exports the metrics as configured. */
#include "agent/metrics/metrics.h"

#include "agent/metrics/metrics_http.h"
#include "agent/metrics/metrics_text.h"
#include "agent/report/report.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics_file.h"
#include "base/pool.h"

#include <stdlib.h>
#include <string.h>

#define LISTEN_AGAIN_MS 10000
#define WRITE_EVERY_MS  5000 /* node_exporter is scraped less often */

/* One writing of the file, in the pool's thread. */
struct writing {
    char *text;
    size_t len;
    struct error outcome;
};

struct metrics {
    struct metrics_setup needs;
    struct metrics_http *http; /* NULL: there is none, or not yet */
    uint64_t listen_after_ms;
    struct error listen_trouble;
    struct pool *writer; /* NULL: no file is written */
    struct writing writing;
    bool busy;        /* writing is with the pool */
    bool owns_file;   /* it has begun to write it, so it is not a dead predecessor's */
    bool has_written; /* as far as write_done has run */
    uint64_t write_after_ms;
    struct error write_trouble;
};

/* Logs a trouble once, until it changes or is over. */
static void note_trouble(struct error *known, const struct error *now)
{
    if (now->code != TCK_OK && strcmp(now->text, known->text) != 0) {
        log_warn("metrics are not exported as configured: %s", now->text);
    }
    *known = *now;
}

/* ---- over HTTP ----------------------------------------------------------------------------------------------- */

static void listen_somewhere(struct metrics *m)
{
    const char *where = m->needs.config->metrics_listen;
    struct socket_address address;
    struct error err = {0};
    m->listen_after_ms = clock_ms() + LISTEN_AGAIN_MS;
    if (listen_address_parse(where, &address, &err) == TCK_OK &&
        metrics_http_start(&address, &m->http, &err) == TCK_OK) {
        log_info("metrics are served at http://%s/metrics", metrics_http_at(m->http));
    } else {
        (void)error_prefix(&err, "metrics_listen %s", where);
    }
    note_trouble(&m->listen_trouble, &err);
}

/* ---- into a file --------------------------------------------------------------------------------------------- */

static void write_work(void *ctx)
{
    struct metrics *m = ctx;
    struct error err = {0};
    tck_status_t status = metrics_file_write(m->needs.config->metrics_textfile, m->writing.text, m->writing.len, &err);
    if (status != TCK_OK) {
        (void)error_prefix(&err, "metrics_textfile");
    }
    m->writing.outcome = err;
}

static void write_done(void *ctx, bool canceled)
{
    struct metrics *m = ctx;
    m->busy = false;
    free(m->writing.text);
    if (canceled) {
        return;
    }
    bool good = m->writing.outcome.code == TCK_OK;
    if (good && (!m->has_written || m->write_trouble.code != TCK_OK)) {
        log_info("metrics are written to %s", m->needs.config->metrics_textfile);
    }
    m->has_written |= good;
    note_trouble(&m->write_trouble, &m->writing.outcome);
}

/* Takes the text over. */
static void write_soon(struct metrics *m, char *text, size_t len)
{
    m->writing = (struct writing){.text = text, .len = len};
    m->busy = text != NULL && pool_submit(m->writer, write_work, write_done, m) == TCK_OK;
    m->owns_file |= m->busy;
    if (!m->busy) {
        free(text); /* out of memory: the time in the file shows that it is old */
    }
    m->write_after_ms = clock_ms() + WRITE_EVERY_MS;
}

/* ---- both ---------------------------------------------------------------------------------------------------- */

static char *text_now(const struct metrics *m, size_t *len_out)
{
    struct report report;
    m->needs.collect(m->needs.ctx, &report);
    return metrics_text(&report, len_out);
}

void metrics_tick(struct metrics *m)
{
    bool listens = m->needs.config->metrics_listen[0] != '\0';
    bool writes = m->writer != NULL && !m->busy && clock_ms() >= m->write_after_ms;
    size_t len = 0;
    if (listens && m->http == NULL && clock_ms() >= m->listen_after_ms) {
        listen_somewhere(m);
    }
    char *text = m->http != NULL || writes ? text_now(m, &len) : NULL;
    if (writes) {
        char *copy = text != NULL ? malloc(len) : NULL;
        write_soon(m, copy != NULL ? memcpy(copy, text, len) : NULL, len);
    }
    if (m->http != NULL && text != NULL) {
        metrics_http_show(m->http, text, len);
    } else {
        free(text);
    }
}

const char *metrics_at(const struct metrics *m)
{
    return m->http != NULL ? metrics_http_at(m->http) : "";
}

const char *metrics_trouble(const struct metrics *m)
{
    return m->listen_trouble.code != TCK_OK ? m->listen_trouble.text : m->write_trouble.text;
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t metrics_new(const struct metrics_setup *setup, struct metrics **out, struct error *err)
{
    struct metrics *m = calloc(1, sizeof(*m));
    if (m == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    m->needs = *setup;
    if (setup->config->metrics_textfile[0] != '\0') {
        tck_status_t status = pool_new(setup->loop, 1, &m->writer, err);
        if (status != TCK_OK) {
            free(m);
            return status;
        }
    }
    if (setup->config->metrics_listen[0] != '\0') {
        listen_somewhere(m);
    }
    *out = m;
    return TCK_OK;
}

void metrics_free(struct metrics *m)
{
    struct error err;
    if (m == NULL) {
        return;
    }
    metrics_http_stop(m->http);
    pool_free(m->writer);
    /* The file of a predecessor that died stays if this agent fails to start: it shows that the node has none. */
    if (m->owns_file && metrics_file_remove(m->needs.config->metrics_textfile, &err) != TCK_OK) {
        log_warn("metrics_textfile: %s: it looks as if the agent hung", err.text);
    }
    free(m);
}
