/* SPDX-License-Identifier: Apache-2.0
 * Failpoints: the environment is read once, then each point counts how often it is passed. */
#include "base/failpoint.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VARIABLE     "TIERCKPT_FAILPOINTS"
#define DIR_VARIABLE "TIERCKPT_FAILPOINT_DIR"
#define DIR_BYTES    512
#define NUMBER_MAX   1000000

enum kind { STEP, CALL, BYTES };

struct point {
    const char *name;
    enum kind kind;
    const char *where;
};

#define POINT(area, point, what, where) {#area "." #point, what, where},
static const struct point points[] = {FAILPOINT_LIST(POINT)};
#undef POINT

enum action { NOTHING, DIE, FAIL, PAUSE, CORRUPT };

struct armed {
    enum action action;
    int error;             /* FAIL */
    unsigned milliseconds; /* PAUSE */
    unsigned hit;          /* the pass at which it takes effect */
    atomic_uint hits;
};

/* Written by failpoints_read alone, before any thread can pass a failpoint. */
static struct armed armed[FAILPOINT_COUNT];
static char once_dir[DIR_BYTES];

/* ---- the environment ----------------------------------------------------------------------------------------- */

/* A number from 1 on that ends at the end of the text. */
static bool parse_number(const char *text, unsigned *out)
{
    char *end;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number == 0 || number > NUMBER_MAX) {
        return false;
    }
    *out = (unsigned)number;
    return true;
}

static bool parse_action(const char *text, struct armed *out)
{
    if (strcmp(text, "kill") == 0) {
        out->action = DIE;
    } else if (strcmp(text, "EIO") == 0 || strcmp(text, "ENOSPC") == 0) {
        out->action = FAIL;
        out->error = strcmp(text, "EIO") == 0 ? EIO : ENOSPC;
    } else if (strcmp(text, "corrupt") == 0) {
        out->action = CORRUPT;
    } else {
        out->action = PAUSE;
        return strncmp(text, "sleep:", 6) == 0 && parse_number(text + 6, &out->milliseconds);
    }
    return true;
}

static int find_point(const char *name)
{
    for (int i = 0; i < FAILPOINT_COUNT; i++) {
        if (strcmp(points[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static bool is_possible(enum action action, enum kind kind)
{
    return (action != FAIL || kind == CALL) && (action != CORRUPT || kind == BYTES);
}

/* NAME=ACTION[@N]; the text is cut into its parts. */
static tck_status_t parse_one(char *text, struct error *err)
{
    struct armed parsed = {.hit = 1};
    char *action = strchr(text, '=');
    char *hit = action != NULL ? strchr(action, '@') : NULL;
    if (action == NULL) {
        return error_set(err, TCK_ERR_CONFIG, VARIABLE ": '%s' is not NAME=ACTION[@N]", text);
    }
    *action++ = '\0';
    if (hit != NULL) {
        *hit++ = '\0';
    }
    int which = find_point(text);
    if (which < 0) {
        return error_set(err, TCK_ERR_CONFIG, VARIABLE ": there is no failpoint '%s'", text);
    }
    if (!parse_action(action, &parsed) || (hit != NULL && !parse_number(hit, &parsed.hit))) {
        return error_set(err, TCK_ERR_CONFIG,
                         VARIABLE
                         ": %s=%s%s%s: the action is kill, EIO, ENOSPC, sleep:MS or corrupt, then @N from 1 on",
                         text, action, hit != NULL ? "@" : "", hit != NULL ? hit : "");
    }
    if (!is_possible(parsed.action, points[which].kind)) {
        return error_set(err, TCK_ERR_CONFIG, VARIABLE ": %s: '%s' is not possible there", text, action);
    }
    armed[which].action = parsed.action;
    armed[which].error = parsed.error;
    armed[which].milliseconds = parsed.milliseconds;
    armed[which].hit = parsed.hit;
    return TCK_OK;
}

tck_status_t failpoints_read(struct error *err)
{
    const char *value = getenv(VARIABLE), *dir = getenv(DIR_VARIABLE);
    char *text = strdup(value != NULL ? value : ""), *rest = text;
    tck_status_t status = TCK_OK;
    if (text == NULL || (dir != NULL && strlen(dir) >= sizeof(once_dir))) {
        free(text);
        return error_set(err, TCK_ERR_CONFIG, VARIABLE ": no memory, or " DIR_VARIABLE " is too long");
    }
    snprintf(once_dir, sizeof(once_dir), "%s", dir != NULL ? dir : "");
    for (char *one; status == TCK_OK && (one = strsep(&rest, ";")) != NULL;) {
        status = one[0] == '\0' ? TCK_OK : parse_one(one, err);
    }
    free(text);
    return status;
}

void failpoints_print(void)
{
    static const char *const kinds[] = {[STEP] = "step", [CALL] = "call", [BYTES] = "bytes"};
    for (int i = 0; i < FAILPOINT_COUNT; i++) {
        printf("%s\t%s\t%s\n", points[i].name, kinds[points[i].kind], points[i].where);
    }
}

/* ---- passing one --------------------------------------------------------------------------------------------- */

/* Creates the file that records this; false if it already exists or cannot be created. */
static bool is_first(enum failpoint which)
{
    char path[DIR_BYTES + 64];
    if (once_dir[0] == '\0') {
        return true;
    }
    snprintf(path, sizeof(path), "%s/%s", once_dir, points[which].name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return false;
    }
    dprintf(fd, "%d\n", (int)getpid());
    close(fd);
    return true;
}

static void pause_for(unsigned milliseconds)
{
    struct timespec left = {.tv_sec = milliseconds / 1000, .tv_nsec = (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
        /* the rest of it */
    }
}

/* Carries out the actions that every kind of failpoint allows. Returns what takes effect now, or NULL. */
static const struct armed *pass(enum failpoint which)
{
    struct armed *a = &armed[which];
    if (a->action == NOTHING || atomic_fetch_add(&a->hits, 1) + 1 != a->hit || !is_first(which)) {
        return NULL;
    }
    log_warn("failpoint %s", points[which].name);
    if (a->action == DIE) {
        kill(getpid(), SIGKILL);
    } else if (a->action == PAUSE) {
        pause_for(a->milliseconds);
    }
    return a;
}

void failpoint_pass(enum failpoint which)
{
    int before = errno;
    (void)pass(which);
    errno = before;
}

bool failpoint_pass_call(enum failpoint which)
{
    const struct armed *now = pass(which);
    if (now == NULL || now->action != FAIL) {
        return false;
    }
    errno = now->error;
    return true;
}

void failpoint_pass_bytes(enum failpoint which, void *data, size_t len)
{
    const struct armed *now = pass(which);
    if (now != NULL && now->action == CORRUPT && len > 0) {
        ((uint8_t *)data)[len / 2] ^= 1;
    }
}
