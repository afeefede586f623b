/* SPDX-License-Identifier: Apache-2.0
 * System calls that end in the world: the linker sends each here (--wrap in CMakeLists.txt). */
#ifndef TCK_SIM_AGENT_WRAPPED_H
#define TCK_SIM_AGENT_WRAPPED_H

#include <poll.h>
#include <sys/stat.h>
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
int __real_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __real_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);

#endif
