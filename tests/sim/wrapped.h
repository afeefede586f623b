/* SPDX-License-Identifier: Apache-2.0
 * System calls that the world implements: the linker redirects each to its wrapper (--wrap in CMakeLists.txt). */
#ifndef TCK_SIM_WRAPPED_H
#define TCK_SIM_WRAPPED_H

#include <dirent.h>
#include <poll.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/types.h>
#include <time.h>

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_memfd_create(const char *name, unsigned flags);
int __real_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes);
ssize_t __real_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len);
int __real_fstat(int fd, struct stat *out);
int __wrap_fstat(int fd, struct stat *out);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes);
int __real_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...);
int __wrap_shutdown(int fd, int how);
int __real_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
long __real_syscall(long number, long a, long b, long c, long d, long e);
long __wrap_syscall(long number, long a, long b, long c, long d, long e);
pid_t __real_getpid(void);
pid_t __wrap_getpid(void);
void __real__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, ...);
int __real_openat(int dir_fd, const char *name, int flags, mode_t mode);
int __wrap_openat(int dir_fd, const char *name, int flags, ...);
int __real_dup3(int from, int to, int flags);
int __wrap_dup3(int from, int to, int flags);
ssize_t __real_pread(int fd, void *to, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t len, off_t at);
ssize_t __real_pwrite(int fd, const void *from, size_t len, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t len, off_t at);
ssize_t __real_read(int fd, void *to, size_t len);
ssize_t __wrap_read(int fd, void *to, size_t len);
off_t __real_lseek(int fd, off_t to, int from);
off_t __wrap_lseek(int fd, off_t to, int from);
int __real_fallocate(int fd, int mode, off_t at, off_t len);
int __wrap_fallocate(int fd, int mode, off_t at, off_t len);
int __real_posix_fadvise(int fd, off_t at, off_t len, int advice);
int __wrap_posix_fadvise(int fd, off_t at, off_t len, int advice);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_fstatat(int dir_fd, const char *name, struct stat *out, int flags);
int __wrap_fstatat(int dir_fd, const char *name, struct stat *out, int flags);
int __real_statfs(const char *path, struct statfs *out);
int __wrap_statfs(const char *path, struct statfs *out);
DIR *__wrap_fdopendir(int fd);
struct dirent *__wrap_readdir(DIR *stream);
int __wrap_closedir(DIR *stream);
int __real_mkdirat(int dir_fd, const char *name, mode_t mode);
int __wrap_mkdirat(int dir_fd, const char *name, mode_t mode);
int __real_unlinkat(int dir_fd, const char *name, int flags);
int __wrap_unlinkat(int dir_fd, const char *name, int flags);
int __real_linkat(int from_fd, const char *from, int to_fd, const char *to, int flags);
int __wrap_linkat(int from_fd, const char *from, int to_fd, const char *to, int flags);
long __wrap_sysconf(int name);
uint32_t __wrap_processors_usable(const char *root);

#endif
