/* SPDX-License-Identifier: Apache-2.0
 * The job's secret: known test vectors, ownership of the file, and one secret for all processes that create it at the
 * same time. */
#include "base/secret.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/tck-secret-XXXXXX";
static int dir_fd;

static void enter_directory(void)
{
    cr_assert_not_null(mkdtemp(dir));
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_geq(dir_fd, 0);
    cr_assert_eq(fchdir(dir_fd), 0);
}

static size_t count_files(bool and_delete)
{
    DIR *list = opendir(dir);
    size_t count = 0;
    cr_assert_not_null(list);
    for (struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            count++;
            if (and_delete) {
                unlinkat(dir_fd, entry->d_name, 0);
            }
        }
    }
    closedir(list);
    return count;
}

static void leave_directory(void)
{
    count_files(true);
    close(dir_fd);
    rmdir(dir);
}

TestSuite(secret, .init = enter_directory, .fini = leave_directory);

static void put_file(const char *name, mode_t mode, const void *content, size_t len)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, content, len), (ssize_t)len);
    cr_assert_eq(fchmod(fd, mode), 0);
    close(fd);
}

static void expect_hex(const uint8_t mac[MAC_BYTES], const char *want)
{
    char text[2 * MAC_BYTES + 1];
    for (size_t i = 0; i < MAC_BYTES; i++) {
        sprintf(text + 2 * i, "%02x", mac[i]);
    }
    cr_assert_str_eq(text, want);
}

Test(secret, sha256_has_the_known_values)
{
    uint8_t digest[MAC_BYTES];
    sha256("abc", 3, digest);
    expect_hex(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256("", 0, digest);
    expect_hex(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

Test(secret, mac_has_the_values_of_rfc_4231)
{
    /* The RFC's keys are shorter; HMAC pads keys with zeros, so these are the same keys. */
    struct secret key = {0};
    uint8_t mac[MAC_BYTES];
    memset(key.bytes, 0x0b, 20);
    secret_mac(&key, "Hi ", "There", 5, mac);
    expect_hex(mac, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    memset(key.bytes, 0, sizeof(key.bytes));
    memcpy(key.bytes, "Jefe", 4);
    secret_mac(&key, "what do ya want for nothing?", NULL, 0, mac);
    expect_hex(mac, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

Test(secret, macs_differ_by_label_data_and_secret)
{
    struct secret key = {{1}}, other = {{2}};
    uint8_t a[MAC_BYTES], b[MAC_BYTES];
    secret_mac(&key, "client", "job", 3, a);
    secret_mac(&key, "client", "job", 3, b);
    cr_assert(mac_equal(a, b));
    secret_mac(&key, "agent", "job", 3, b);
    cr_assert_not(mac_equal(a, b));
    secret_mac(&key, "client", "jab", 3, b);
    cr_assert_not(mac_equal(a, b));
    secret_mac(&other, "client", "job", 3, b);
    cr_assert_not(mac_equal(a, b));
}

Test(secret, wipe_leaves_zeros)
{
    struct secret key = {{1, 2, 3}}, zero = {0};
    secret_wipe(&key);
    cr_assert_eq(memcmp(&key, &zero, sizeof(key)), 0);
}

Test(secret, loads_a_private_file_by_its_content)
{
    struct secret a, b;
    struct error err = {0};
    put_file("a", 0600, "sixteen bytes...", 16);
    put_file("b", 0400, "sixteen bytes...", 16);
    cr_assert_eq(secret_load("a", &a, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(secret_load("b", &b, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(memcmp(&a, &b, sizeof(a)), 0);
    expect_hex(a.bytes, "0f1442166d84cb72f5a6f29b63c4e82469086e7d5ebae3082c53050b5c8eb9ae");
}

static void expect_denied(const char *name)
{
    struct secret secret;
    struct error err = {0};
    cr_assert_eq(secret_load(name, &secret, &err), TCK_ERR_DENIED, "%s: %s", name, err.text);
    cr_assert_not_null(strstr(err.text, name), "%s", err.text);
}

Test(secret, refuses_files_that_others_can_use)
{
    static const mode_t modes[] = {0640, 0604, 0620, 0602, 0610, 0777};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        put_file("s", modes[i], "sixteen bytes...", 16);
        expect_denied("s");
    }
}

Test(secret, refuses_files_of_another_user)
{
    if (geteuid() != 0) {
        cr_skip_test("only root can give a file away");
    }
    put_file("s", 0600, "sixteen bytes...", 16);
    cr_assert_eq(chown("s", 12345, (gid_t)-1), 0);
    expect_denied("s");
}

Test(secret, refuses_what_is_not_a_regular_file)
{
    cr_assert_eq(mkfifo("pipe", 0600), 0);
    expect_denied("pipe");
    expect_denied("/");
}

Test(secret, refuses_too_little_and_too_much)
{
    static const char content[4097];
    struct secret secret;
    struct error err = {0};
    put_file("s", 0600, content, 15);
    cr_assert_eq(secret_load("s", &secret, &err), TCK_ERR_CONFIG);
    put_file("s", 0600, content, 4097);
    cr_assert_eq(secret_load("s", &secret, &err), TCK_ERR_CONFIG);
    put_file("s", 0600, content, 4096);
    cr_assert_eq(secret_load("s", &secret, &err), TCK_OK);
    cr_assert_eq(secret_load("missing", &secret, &err), TCK_ERR_NOENT);
}

Test(secret, makes_a_secret_once_and_finds_it_again)
{
    struct secret first, second;
    struct error err = {0};
    struct stat st;
    umask(0);
    cr_assert_eq(secret_load_or_make(dir_fd, "secret", &first, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(secret_load_or_make(dir_fd, "secret", &second, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(memcmp(&first, &second, sizeof(first)), 0);
    cr_assert_eq(stat("secret", &st), 0);
    cr_assert_eq(st.st_mode & 07777u, 0600);
    cr_assert_eq(count_files(false), 1, "a temporary file is left");
}

Test(secret, makes_another_secret_each_time)
{
    struct secret a, b;
    struct error err = {0};
    cr_assert_eq(secret_load_or_make(dir_fd, "a", &a, &err), TCK_OK);
    cr_assert_eq(secret_load_or_make(dir_fd, "b", &b, &err), TCK_OK);
    cr_assert_neq(memcmp(&a, &b, sizeof(a)), 0);
}

static void make_in_child(int go, int result)
{
    struct secret secret;
    char byte;
    if (read(go, &byte, 1) != 0 || secret_load_or_make(dir_fd, "secret", &secret, NULL) != TCK_OK) {
        _exit(1);
    }
    _exit(write(result, &secret, sizeof(secret)) == (ssize_t)sizeof(secret) ? 0 : 1);
}

Test(secret, gives_one_secret_to_all_who_make_it_at_once)
{
    enum { MAKERS = 8 };
    int go[2], results[2], wait_status;
    pid_t children[MAKERS];
    struct secret first, other;
    cr_assert(pipe(go) == 0 && pipe(results) == 0);
    for (int i = 0; i < MAKERS; i++) {
        children[i] = fork();
        cr_assert_geq(children[i], 0);
        if (children[i] == 0) {
            close(go[1]);
            make_in_child(go[0], results[1]);
        }
    }
    close(go[1]); /* they all see the end of the pipe now */
    for (int i = 0; i < MAKERS; i++) {
        cr_assert_eq(waitpid(children[i], &wait_status, 0), children[i]);
        cr_assert(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
        cr_assert_eq(read(results[0], i == 0 ? &first : &other, sizeof(first)), (ssize_t)sizeof(first));
        cr_assert(i == 0 || memcmp(&first, &other, sizeof(first)) == 0);
    }
    cr_assert_eq(count_files(false), 1);
}

Test(secret, refuses_a_made_file_that_is_not_exactly_ours)
{
    struct secret secret;
    struct error err = {0};
    char line[68];
    memset(line, 'A', 64);
    line[64] = '\n';
    put_file("secret", 0600, line, 65);
    cr_assert_eq(secret_load_or_make(dir_fd, "secret", &secret, &err), TCK_OK, "%s", err.text);
    put_file("secret", 0600, line, 64);
    cr_assert_eq(secret_load_or_make(dir_fd, "secret", &secret, &err), TCK_ERR_CORRUPT);
    line[65] = '\n';
    put_file("secret", 0600, line, 66);
    cr_assert_eq(secret_load_or_make(dir_fd, "secret", &secret, &err), TCK_ERR_CORRUPT);
    line[10] = 'x';
    put_file("secret", 0600, line, 65);
    cr_assert_eq(secret_load_or_make(dir_fd, "secret", &secret, &err), TCK_ERR_CORRUPT);
    line[10] = '\0';
    put_file("secret", 0600, line, 65);
    cr_assert_eq(secret_load_or_make(dir_fd, "secret", &secret, &err), TCK_ERR_CORRUPT);
    put_file("secret", 0600, "", 0);
    cr_assert_eq(secret_load_or_make(dir_fd, "secret", &secret, &err), TCK_ERR_CORRUPT);
}

Test(secret, follows_no_link_to_a_made_file)
{
    struct secret secret;
    struct error err = {0};
    cr_assert_eq(secret_load_or_make(dir_fd, "real", &secret, &err), TCK_OK);
    cr_assert_eq(symlink("real", "secret"), 0);
    cr_assert_neq(secret_load_or_make(dir_fd, "secret", &secret, &err), TCK_OK);
}

Test(secret, random_bytes_fill_any_length)
{
    uint8_t a[1000] = {0}, b[1000] = {0};
    cr_assert_eq(random_bytes(a, sizeof(a)), TCK_OK);
    cr_assert_eq(random_bytes(b, sizeof(b)), TCK_OK);
    cr_assert_neq(memcmp(a, b, sizeof(a)), 0);
    cr_assert_eq(random_bytes(a, 0), TCK_OK);
}
