/* SPDX-License-Identifier: Apache-2.0
 * The job's secret: read from a user's file or made once for the whole job, and the MACs made of it. */
#include "base/secret.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define USER_FILE_MIN 16
#define USER_FILE_MAX 4096
#define TEMP_NAME_MAX 256

void secret_mac(const struct secret *secret, const char *label, const void *data, size_t len, uint8_t out[MAC_BYTES])
{
    hmac_sha256((struct crypto_bytes){secret->bytes, SECRET_BYTES}, (struct crypto_bytes){label, strlen(label)},
                (struct crypto_bytes){data, len}, out);
}

bool mac_equal(const uint8_t a[MAC_BYTES], const uint8_t b[MAC_BYTES])
{
    return CRYPTO_memcmp(a, b, MAC_BYTES) == 0;
}

void secret_wipe(struct secret *secret)
{
    OPENSSL_cleanse(secret, sizeof(*secret));
}

static tck_status_t check_private(int fd, const char *path, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return error_set(err, status_of_errno(errno), "secret file %s: fstat: %m", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return error_set(err, TCK_ERR_DENIED, "secret file %s: not a regular file", path);
    }
    if (st.st_uid != geteuid()) {
        return error_set(err, TCK_ERR_DENIED, "secret file %s: belongs to user %u, not to user %u", path, st.st_uid,
                         geteuid());
    }
    if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return error_set(err, TCK_ERR_DENIED, "secret file %s: mode %04o lets others use it; it must be 0600 or 0400",
                         path, st.st_mode & 07777u);
    }
    return TCK_OK;
}

static tck_status_t open_private(int dir_fd, const char *path, int flags, int *fd_out, struct error *err)
{
    /* Non-blocking, so that a pipe in the file's place is refused by the check and not waited for. */
    int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags);
    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "secret file %s cannot be opened: %m", path);
    }
    tck_status_t status = check_private(fd, path, err);
    if (status != TCK_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    return TCK_OK;
}

/* Reads until the end of the file or until buf is full, and closes fd. */
static tck_status_t read_and_close(int fd, const char *path, void *buf, size_t cap, size_t *len_out, struct error *err)
{
    tck_status_t status = TCK_OK;
    size_t len = 0;
    while (status == TCK_OK && len < cap) {
        ssize_t n = read(fd, (uint8_t *)buf + len, cap - len);
        if (n == 0) {
            break;
        }
        if (n > 0) {
            len += (size_t)n;
        } else if (errno != EINTR) {
            status = error_set(err, status_of_errno(errno), "secret file %s: read: %m", path);
        }
    }
    close(fd);
    *len_out = len;
    return status;
}

tck_status_t secret_load(const char *path, struct secret *out, struct error *err)
{
    uint8_t content[USER_FILE_MAX + 1];
    size_t len = 0;
    int fd = -1;
    tck_status_t status = open_private(AT_FDCWD, path, 0, &fd, err);
    if (status != TCK_OK) {
        return status;
    }
    status = read_and_close(fd, path, content, sizeof(content), &len, err);
    if (status == TCK_OK && (len < USER_FILE_MIN || len > USER_FILE_MAX)) {
        status = error_set(err, TCK_ERR_CONFIG, "secret file %s: must have %d to %d bytes", path, USER_FILE_MIN,
                           USER_FILE_MAX);
    }
    if (status == TCK_OK) {
        sha256(content, len, out->bytes);
    }
    OPENSSL_cleanse(content, sizeof(content));
    return status;
}

/* The content of a file that we made, and one more byte to detect a longer one. */
struct line {
    char text[SECRET_LINE_BYTES + 1];
    size_t len;
};

static tck_status_t read_line(int dir_fd, const char *name, struct line *out, struct error *err)
{
    int fd = -1;
    *out = (struct line){0};
    tck_status_t status = open_private(dir_fd, name, O_NOFOLLOW, &fd, err);
    return status == TCK_OK ? read_and_close(fd, name, out->text, sizeof(out->text), &out->len, err) : status;
}

/* The file has no checksum, and an agent with another secret could not talk to any other one, so it is read
 * twice. */
static tck_status_t read_line_twice(int dir_fd, const char *name, struct line *out, struct error *err)
{
    struct line again;
    tck_status_t status = read_line(dir_fd, name, out, err);
    if (status == TCK_OK) {
        status = read_line(dir_fd, name, &again, err);
        if (status == TCK_OK && (again.len != out->len || memcmp(again.text, out->text, out->len) != 0)) {
            status = error_set(err, TCK_ERR_CORRUPT,
                               "secret file %s: two reads of it differ: storage returns damaged data", name);
        }
        OPENSSL_cleanse(&again, sizeof(again));
    }
    return status;
}

static tck_status_t decode_line(struct line *line, const char *name, struct secret *out, struct error *err)
{
    struct secret secret;
    size_t decoded = 0;
    tck_status_t status = TCK_OK;
    bool whole = line->len == SECRET_LINE_BYTES && line->text[SECRET_LINE_BYTES - 1] == '\n';
    line->text[SECRET_LINE_BYTES - 1] = '\0';
    if (whole && OPENSSL_hexstr2buf_ex(secret.bytes, SECRET_BYTES, &decoded, line->text, '\0') == 1 &&
        decoded == SECRET_BYTES) {
        *out = secret;
    } else {
        status = error_set(err, TCK_ERR_CORRUPT, "secret file %s: is not the %d hex digits and newline that we write",
                           name, 2 * SECRET_BYTES);
    }
    secret_wipe(&secret);
    return status;
}

static tck_status_t read_made(int dir_fd, const char *name, struct secret *out, struct error *err)
{
    struct line line;
    tck_status_t status = read_line_twice(dir_fd, name, &line, err);
    if (status == TCK_OK) {
        status = decode_line(&line, name, out, err);
    }
    OPENSSL_cleanse(&line, sizeof(line));
    return status;
}

/* A new secret as the line that a file holds. */
static tck_status_t random_line(char line[SECRET_LINE_BYTES + 1])
{
    struct secret secret;
    tck_status_t status = random_bytes(secret.bytes, SECRET_BYTES);
    if (status == TCK_OK &&
        OPENSSL_buf2hexstr_ex(line, SECRET_LINE_BYTES, NULL, secret.bytes, SECRET_BYTES, '\0') != 1) {
        status = TCK_ERR_INTERNAL;
    }
    line[SECRET_LINE_BYTES - 1] = '\n';
    line[SECRET_LINE_BYTES] = '\0';
    secret_wipe(&secret);
    return status;
}

tck_status_t secret_new_line(char line[SECRET_LINE_BYTES + 1], struct error *err)
{
    tck_status_t status = random_line(line);
    return status == TCK_OK ? TCK_OK : error_set(err, status, "secret: no random bytes");
}

tck_status_t secret_of_line(const char *text, size_t len, const char *name, struct secret *out, struct error *err)
{
    struct line line = {.len = len};
    memcpy(line.text, text, len < sizeof(line.text) ? len : sizeof(line.text));
    tck_status_t status = decode_line(&line, name, out, err);
    OPENSSL_cleanse(&line, sizeof(line));
    return status;
}

void secret_wipe_line(char *line, size_t len)
{
    OPENSSL_cleanse(line, len);
}

static tck_status_t write_temp(int dir_fd, const char *temp, struct error *err)
{
    char line[SECRET_LINE_BYTES + 1];
    if (random_line(line) != TCK_OK) {
        return error_set(err, TCK_ERR_INTERNAL, "secret: no random bytes");
    }
    tck_status_t status = TCK_OK;
    int fd = openat(dir_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        status = error_set(err, status_of_errno(errno), "secret file %s: create: %m", temp);
        goto wipe_line;
    }
    ssize_t written = write(fd, line, SECRET_LINE_BYTES);
    if (written != SECRET_LINE_BYTES || fsync(fd) != 0) {
        int cause = written >= 0 && written < SECRET_LINE_BYTES ? ENOSPC : errno;
        errno = cause;
        status = error_set(err, status_of_errno(cause), "secret file %s: write: %m", temp);
        (void)unlinkat(dir_fd, temp, 0);
    }
    close(fd);
wipe_line:
    OPENSSL_cleanse(line, sizeof(line));
    return status;
}

/* Creates a new secret under this name unless there is one. A link appears atomically and complete, and fails if the
 * name is taken, so a second process finds the secret of the first. */
static tck_status_t make(int dir_fd, const char *name, struct error *err)
{
    char temp[TEMP_NAME_MAX];
    uint64_t suffix;
    if (random_bytes(&suffix, sizeof(suffix)) != TCK_OK) {
        return error_set(err, TCK_ERR_INTERNAL, "secret: no random bytes");
    }
    int len = snprintf(temp, sizeof(temp), "%s.%016" PRIx64 ".tmp", name, suffix);
    if (len < 0 || (size_t)len >= sizeof(temp)) {
        return error_set(err, TCK_ERR_INVAL, "secret file %s: the name is too long", name);
    }
    tck_status_t status = write_temp(dir_fd, temp, err);
    if (status != TCK_OK) {
        return status;
    }
    if (linkat(dir_fd, temp, dir_fd, name, 0) != 0 && errno != EEXIST) {
        status = error_set(err, status_of_errno(errno), "secret file %s: link: %m", name);
    }
    (void)unlinkat(dir_fd, temp, 0);
    if (status == TCK_OK && fsync(dir_fd) != 0) {
        status = error_set(err, status_of_errno(errno), "secret file %s: fsync of its directory: %m", name);
    }
    return status;
}

tck_status_t secret_load_or_make(int dir_fd, const char *name, struct secret *out, struct error *err)
{
    tck_status_t status = read_made(dir_fd, name, out, err);
    if (status != TCK_ERR_NOENT) {
        return status;
    }
    status = make(dir_fd, name, err);
    return status == TCK_OK ? read_made(dir_fd, name, out, err) : status;
}
