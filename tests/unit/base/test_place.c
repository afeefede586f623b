/* SPDX-License-Identifier: Apache-2.0 */
#include "base/place.h"

#include "base/lock.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK   "some.lock"
#define SOCKET "some.sock"

static char base[] = "/tmp/tck-place-XXXXXX";
static char dir[sizeof(base) + 8];
static struct error err;
static int made;

/* Any file can replace the socket in these tests. */
static tck_status_t make(void *ctx, int dir_fd, struct error *why)
{
    (void)ctx;
    int fd = openat(dir_fd, SOCKET, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    made++;
    if (fd < 0) {
        return error_set(why, status_of_errno(errno), "%s: %m", SOCKET);
    }
    close(fd);
    return TCK_OK;
}

static struct place *take(void)
{
    const struct place_setup needs = {.dir = dir, .lock = LOCK, .socket = SOCKET, .role = "agent", .make = make};
    struct place *place = NULL;
    cr_assert_eq(place_take(&needs, &place, &err), TCK_OK, "%s", err.text);
    int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    cr_assert_eq(make(NULL, dir_fd, &err), TCK_OK, "%s", err.text);
    close(dir_fd);
    cr_assert_eq(place_note_socket(place, &err), TCK_OK, "%s", err.text);
    made = 0;
    return place;
}

static void delete_file(const char *name)
{
    char path[sizeof(dir) + 32];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    unlink(path);
}

static void delete_dir(void)
{
    delete_file(LOCK);
    delete_file(SOCKET);
    cr_assert_eq(rmdir(dir), 0);
}

static bool exists(const char *name)
{
    char path[sizeof(dir) + 32];
    struct stat st;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return stat(path, &st) == 0;
}

static bool is_locked(void)
{
    int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool held = dir_fd >= 0 && lock_is_held(dir_fd, LOCK);
    close(dir_fd);
    return held;
}

static void setup(void)
{
    cr_assert_not_null(mkdtemp(base));
    snprintf(dir, sizeof(dir), "%s/d", base);
}

static void teardown(void)
{
    delete_file(LOCK);
    delete_file(SOCKET);
    rmdir(dir);
    rmdir(base);
}

TestSuite(place, .init = setup, .fini = teardown);

Test(place, stands_only_with_lock_and_socket)
{
    struct place_facts facts = {.seen = true, .lock_is_ours = true, .socket_is_ours = true};
    cr_assert_eq(place_judge(&facts), PLACE_STANDS);
    facts.socket_is_ours = false;
    cr_assert_eq(place_judge(&facts), PLACE_LACKS_SOCKET);
    facts.lock_is_ours = false;
    cr_assert_eq(place_judge(&facts), PLACE_LACKS_ALL);
    facts.socket_is_ours = true;
    cr_assert_eq(place_judge(&facts), PLACE_LACKS_ALL);
}

Test(place, yields_to_the_process_that_holds_the_lock_whoever_has_the_socket)
{
    struct place_facts facts = {.seen = true, .lock_is_held = true};
    cr_assert_eq(place_judge(&facts), PLACE_YIELDS);
    facts.socket_is_ours = true;
    cr_assert_eq(place_judge(&facts), PLACE_YIELDS);
}

Test(place, is_not_judged_by_what_could_not_be_seen)
{
    struct place_facts facts = {0};
    cr_assert_eq(place_judge(&facts), PLACE_UNCLEAR);
}

Test(place, that_stands_is_left_alone)
{
    struct place *place = take();
    place_tick(place);
    cr_assert_eq(made, 0);
    place_free(place);
    cr_assert_not(is_locked());
}

Test(place, is_made_again_with_its_directory)
{
    struct place *place = take();
    delete_dir();
    place_tick(place);
    cr_assert_eq(made, 1);
    cr_assert(is_locked());
    cr_assert(exists(SOCKET));
    place_tick(place);
    cr_assert_eq(made, 1);
    place_free(place);
}

Test(place, with_its_lock_has_its_socket_made_again)
{
    struct place *place = take();
    delete_file(SOCKET);
    place_tick(place);
    cr_assert_eq(made, 1);
    cr_assert(exists(SOCKET));
    cr_assert(is_locked());
    place_free(place);
}

Test(place, taken_by_another_process_is_not_touched_until_it_ends)
{
    struct place *place = take();
    delete_dir();
    struct place *other = take();
    place_tick(place);
    place_tick(place);
    cr_assert_eq(made, 0);
    place_free(other);
    place_tick(place);
    cr_assert_eq(made, 1);
    cr_assert(is_locked());
    place_free(place);
}

Test(place, whose_directory_is_unsafe_is_not_made_there)
{
    struct place *place = take();
    delete_dir();
    cr_assert_eq(mkdir(dir, 0700), 0);
    cr_assert_eq(chmod(dir, 0777), 0);
    place_tick(place);
    cr_assert_eq(made, 0);
    cr_assert_not(exists(LOCK));
    place_free(place);
}

Test(place, is_taken_once)
{
    const struct place_setup needs = {.dir = dir, .lock = LOCK, .socket = SOCKET, .role = "agent", .make = make};
    struct place *place = take(), *other = NULL;
    cr_assert_eq(place_take(&needs, &other, &err), TCK_ERR_EXIST);
    place_free(place);
}
