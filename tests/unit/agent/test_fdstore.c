/* SPDX-License-Identifier: Apache-2.0
 * The agent's side of the descriptor store: how many files fit, and what a store that was away gets afterwards. */
#include "agent/lifecycle/fd_list.h"
#include "agent/lifecycle/fdstore.h"
#include "supervisor/supervisor_notify.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct config config = {.job = "job", .node = "n0", .runtime_dir = "/nonexistent", .linger_s = 600};

static struct fdstore *store_new(const char *notify_socket, bool ours)
{
    struct fdstore *store;
    struct error err;
    unsetenv("NOTIFY_SOCKET");
    unsetenv("TIERCKPT_SUPERVISOR");
    if (notify_socket != NULL) {
        setenv("NOTIFY_SOCKET", notify_socket, 1);
    }
    if (ours) {
        setenv("TIERCKPT_SUPERVISOR", "1", 1);
    }
    cr_assert_eq(fdstore_new(&config, &store, &err), TCK_OK, "%s", err.text);
    return store;
}

static void name_of(uint32_t i, char name[PARK_NAME_MAX])
{
    snprintf(name, PARK_NAME_MAX, "%c.%032x", i % 2 == 0 ? 'd' : 'm', i / 2);
}

/* The descriptor is not looked at before it is sent. */
static tck_status_t put(struct fdstore *store, uint32_t i, struct error *err)
{
    char name[PARK_NAME_MAX];
    name_of(i, name);
    return fdstore_put(store, name, STDERR_FILENO, err);
}

static uint32_t put_until_refused(struct fdstore *store, uint32_t most, struct error *err)
{
    uint32_t i = 0;
    while (i <= most && put(store, i, err) == TCK_OK) {
        i++;
    }
    return i;
}

/* ---- how many fit ------------------------------------------------------------------------------------------------ */

Test(fdstore_room, leaves_some_descriptors_for_other_uses)
{
    cr_assert_eq(fdstore_most(0), 0);
    cr_assert_eq(fdstore_most(64), 0);
    cr_assert_eq(fdstore_most(256), 192);
    cr_assert_eq(fdstore_most(1024), 896);
    cr_assert_eq(fdstore_most(20000), 17500);
    cr_assert_geq(fdstore_most(65000), 2 * 16384, "UCX has handlers for no more");
    cr_assert_eq(fdstore_most(UINT64_MAX), PARK_FILES_MAX);
}

Test(fdstore_room, names_the_limit_of_open_files)
{
    struct rlimit limit;
    struct error err = {0};
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 256;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    struct fdstore *store = store_new(NULL, false);

    cr_assert_eq(put_until_refused(store, 256, &err), 192);
    cr_assert_eq(err.code, TCK_ERR_NOSPC);
    cr_assert_not_null(strstr(err.text, "RLIMIT_NOFILE is 256, which is enough for 192 files"), "%s", err.text);
    cr_assert_eq(put(store, 0, &err), TCK_OK, "it is in the list already");
    fdstore_free(store);
}

/* systemd could not start the agent again if the names did not fit into its environment. */
Test(fdstore_room, is_less_with_a_service_manager_than_with_the_supervisor)
{
    struct rlimit limit;
    struct error err = {0};
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < 8192) {
        cr_skip_test("only %lu descriptors are allowed here", (unsigned long)limit.rlim_max);
    }
    limit.rlim_cur = 8192;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    struct fdstore *store = store_new("/nonexistent/notify", false);
    uint32_t names = PARK_NAMES_BYTES / 35;

    cr_assert_eq(put_until_refused(store, 8192, &err), names);
    cr_assert_eq(err.code, TCK_ERR_NOSPC);
    cr_assert_not_null(strstr(err.text, "one variable"), "%s", err.text);
    fdstore_free(store);
    store = store_new("/nonexistent/notify", true);
    cr_assert_eq(put_until_refused(store, 8192, &err), fdstore_most(8192));
    fdstore_free(store);
}

/* ---- a store that was away ------------------------------------------------------------------------------------- */

struct mailbox {
    char dir[64], path[128];
    int dir_fd, fd;
};

static struct mailbox mailbox_new(void)
{
    struct mailbox box = {.dir = "/tmp/tck-fdstore-XXXXXX", .fd = -1};
    cr_assert_not_null(mkdtemp(box.dir));
    snprintf(box.path, sizeof(box.path), "%s/" NOTIFY_SOCKET_NAME, box.dir);
    box.dir_fd = open(box.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return box;
}

static void mailbox_free(struct mailbox *box)
{
    close(box->fd);
    close(box->dir_fd);
    unlink(box->path);
    rmdir(box->dir);
}

static int new_file(void)
{
    int fd = memfd_create("x", MFD_CLOEXEC);
    cr_assert_geq(fd, 0);
    return fd;
}

static bool same_file(int a, int b)
{
    struct stat st_a, st_b;
    return fstat(a, &st_a) == 0 && fstat(b, &st_b) == 0 && st_a.st_ino == st_b.st_ino;
}

/* Asserts that the next message stores or removes this name. */
static void assert_next(const struct mailbox *box, const char *name, int fd)
{
    struct notify_message message;
    cr_assert(notify_receive(box->fd, &message));
    cr_assert_str_eq(message.name, name);
    cr_assert_eq(message.store, fd >= 0);
    cr_assert_eq(message.remove, fd < 0);
    if (fd >= 0) {
        cr_assert(same_file(message.fd, fd));
        close(message.fd);
    }
}

Test(fdstore, sends_what_is_pending_once_the_store_answers, .timeout = 200)
{
    struct mailbox box = mailbox_new();
    struct fdstore *store = store_new(box.path, false);
    struct notify_message message;
    struct error err = {0};
    int kept = new_file(), dropped = new_file();

    cr_assert_eq(fdstore_put(store, "d.1", kept, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(fdstore_put(store, "d.2", dropped, &err), TCK_OK, "%s", err.text);
    fdstore_remove(store, "d.2");
    close(dropped); /* as its owner does, which has removed it */
    cr_assert(fdstore_holds(store, "d.1"));
    cr_assert_not(fdstore_holds(store, "d.2"));
    cr_assert_eq(fdstore_parked(store).not_parked, 2);

    cr_assert_eq(notify_bind(box.dir_fd, &box.fd, &err), TCK_OK, "%s", err.text);
    fdstore_tick(store);
    cr_assert(notify_receive(box.fd, &message));
    cr_assert(message.ready);
    assert_next(&box, "d.2", -1);
    assert_next(&box, "d.1", kept);
    cr_assert_not(notify_receive(box.fd, &message));
    cr_assert_eq(fdstore_parked(store).not_parked, 0);
    cr_assert_eq(fdstore_parked(store).files, 1);
    fdstore_free(store);
    cr_assert(fcntl(kept, F_GETFD) >= 0, "it is the caller's");
    close(kept);
    mailbox_free(&box);
}

Test(fdstore, forgets_a_file_that_the_store_cannot_take)
{
    struct fdstore *store =
        store_new("relative/path/that/is/far/longer/than/the/address/of/a/socket/may/be/so/that/it/is/"
                  "refused/before/anything/is/sent",
                  false);
    struct error err = {0};
    int fd = new_file();

    cr_assert_eq(fdstore_put(store, "d.1", fd, &err), TCK_ERR_INVAL);
    cr_assert_not(fdstore_holds(store, "d.1"));
    cr_assert_eq(fdstore_parked(store).files, 0);
    close(fd);
    fdstore_free(store);
}

/* ---- the list -------------------------------------------------------------------------------------------------- */

Test(fd_list, counts_what_was_sent)
{
    struct fd_list list = {0};

    cr_assert_eq(fd_list_put(&list, "a", 5, NULL), TCK_OK);
    cr_assert_eq(fd_list_put(&list, "bc", 6, NULL), TCK_OK);
    fd_list_set_sent(&list, fd_list_find(&list, "a"), true);
    fd_list_set_sent(&list, fd_list_find(&list, "a"), true);
    cr_assert_eq(list.sent, 1);
    cr_assert_eq(list.name_bytes, 5);
    cr_assert_eq(fd_list_put(&list, "a", 7, NULL), TCK_OK, "another descriptor must be sent again");
    cr_assert_eq(list.sent, 0);
    cr_assert_eq(list.count, 2);
    cr_assert_eq(fd_list_find(&list, "a")->fd, 7);
    fd_list_set_sent(&list, fd_list_find(&list, "bc"), true);
    fd_list_remove(&list, fd_list_find(&list, "bc"));
    cr_assert_null(fd_list_find(&list, "bc"));
    cr_assert_eq(list.sent, 0);
    cr_assert_eq(list.count, 1);
    cr_assert_eq(list.name_bytes, 2);
    fd_list_free(&list);
    cr_assert_eq(list.count, 0);
    cr_assert_null(list.first);
}

/* In any order, as segments are removed. */
Test(fd_list, keeps_its_order_when_any_of_its_items_is_removed)
{
    for (uint32_t gone = 0; gone < 3; gone++) {
        struct fd_list list = {0};
        char name[PARK_NAME_MAX];
        uint32_t seen = 0;
        for (uint32_t i = 0; i < 3; i++) {
            name_of(i, name);
            cr_assert_eq(fd_list_put(&list, name, (int)i, NULL), TCK_OK);
        }
        name_of(gone, name);
        fd_list_remove(&list, fd_list_find(&list, name));
        for (const struct fd_item *item = list.first; item != NULL; item = item->next) {
            cr_assert_neq(item->fd, (int)gone);
            cr_assert(item->prev == NULL ? list.first == item : item->prev->next == item);
            seen++;
        }
        cr_assert_eq(seen, 2);
        fd_list_free(&list);
    }
}
