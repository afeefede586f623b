/* SPDX-License-Identifier: Apache-2.0
 * See link_log.h. Called by any thread, UCX's own among them, 100,000 times a second when descriptors are used up. */
#include "tiers/link_log.h"
#include "base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <ucs/debug/log_def.h>

#define KINDS      64  /* by line of UCX's source; lines that share a slot are limited together */
#define TEXT_BYTES 400 /* enough to recognize the message */

static struct log_limit limits[KINDS];
static pthread_mutex_t limits_lock = PTHREAD_MUTEX_INITIALIZER;

static bool may_log(unsigned line)
{
    bool may = false;

    if (pthread_mutex_trylock(&limits_lock) == 0) { /* otherwise another thread is logging */
        may = log_limit_pass(&limits[line % KINDS]);
        pthread_mutex_unlock(&limits_lock);
    }
    return may;
}

static ucs_log_func_rc_t on_message(const char *file, unsigned line, const char *function, ucs_log_level_t level,
                                    const ucs_log_component_config_t *component, const char *message, va_list ap)
{
    char text[TEXT_BYTES];

    (void)file;
    (void)component;
    if (level != UCS_LOG_LEVEL_ERROR && level != UCS_LOG_LEVEL_WARN) {
        return UCS_LOG_FUNC_RC_CONTINUE;
    }
    if (may_log(line)) {
        vsnprintf(text, sizeof(text), message, ap);
        log_warn("UCX, %s: %s", function, text);
    }
    return UCS_LOG_FUNC_RC_STOP;
}

static void begin(void)
{
    ucs_log_push_handler(on_message);
}

void link_log_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, begin);
}
