/* SPDX-License-Identifier: Apache-2.0
 * Formats values for people, and reads the fields of an answer. */
#include "cli/cli.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void text_bytes(uint64_t bytes, char *out, size_t cap)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(*units)) {
        value /= 1024;
        unit++;
    }
    snprintf(out, cap, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

void text_time(uint64_t wall_ms, char *out, size_t cap)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm local;
    if (wall_ms == 0 || localtime_r(&seconds, &local) == NULL || strftime(out, cap, "%F %T", &local) == 0) {
        snprintf(out, cap, "-");
    }
}

void text_version(const json_t *version, char *out, size_t cap)
{
    uint64_t term;
    uint64_t step;
    if (json_u64(json_get(version, "term"), &term) && json_u64(json_get(version, "step"), &step)) {
        snprintf(out, cap, "%" PRIu64 ".%" PRIu64, term, step);
    } else {
        snprintf(out, cap, "-");
    }
}

const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_str(json_get(object, key));
    return text != NULL ? text : "";
}

double real_of(const json_t *object, const char *key)
{
    double value = 0;
    (void)json_f64(json_get(object, key), &value);
    return value;
}

uint64_t number_of(const json_t *object, const char *key)
{
    uint64_t value = 0;
    return json_u64(json_get(object, key), &value) ? value : 0;
}

bool flag_of(const json_t *object, const char *key)
{
    bool value = false;
    return json_bool(json_get(object, key), &value) && value;
}

bool text_first_line(const char *path, char *out, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd >= 0 ? read(fd, out, cap - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return n > 0;
}
