/* Stands between a program and the calls by which it changes files (LD_PRELOAD), to let it die or fail at a chosen one.

   trust_arm(k, action, error): at the k-th such call from now on
       'k'  the process ends at once, as by a power switch, before the call
       't'  half of what was to be written is written, then the process ends
       'e'  this call and all later ones fail with the error (a full or read-only disk)
       'o'  this call alone fails with the error (a bad sector)
   trust_count(): how many such calls there were since trust_arm.
   trust_log(fd): from now on every such call is written to fd, with its data: what a power cut could undo.
   trust_mark(n): a line in that log. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static long calls = 0, at = 0;
static int action = 0, error_number = 0, log_fd = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void trust_arm(long k, int what, int error) { calls = 0; at = k; action = what; error_number = error; }
long trust_count(void) { return calls; }
void trust_log(int fd) { log_fd = fd; }

static void raw(const void *data, size_t size) {
    while (size > 0) {
        long written = syscall(SYS_write, log_fd, data, size);
        if (written <= 0) _exit(99);
        data = (const char *)data + written;
        size -= (size_t)written;
    }
}

static void note(char kind, const char *path, const char *other, long offset, const void *data, size_t size) {
    if (log_fd < 0) return;
    char head[2 * PATH_MAX + 64];
    int length = snprintf(head, sizeof head, "%c\t%s\t%s\t%ld\t%zu\n", kind, path, other, offset, size);
    raw(head, (size_t)length);
    if (size) raw(data, size);
}

void trust_mark(int number) { note('A', "", "", number, NULL, 0); }

/* The path of an open file, or NULL if it is no file or folder (a pipe, a terminal). */
static const char *path_of(int fd, char *path) {
    struct stat facts;
    if (fd == log_fd || fstat(fd, &facts) != 0 || !(S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode))) return NULL;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    return path;
}

/* Nonzero if the call must fail; does not return if the process must end. */
static int now(int fd, const void *data, size_t size, off_t offset) {
    if (at == 0) return 0;
    calls++;
    if (calls < at || (calls > at && action != 'e')) return 0;
    if (action == 't' && data != NULL) {
        if (offset >= 0) syscall(SYS_pwrite64, fd, data, size / 2, offset);
        else syscall(SYS_write, fd, data, size / 2);
    }
    if (action == 'k' || action == 't') syscall(SYS_exit_group, 77);
    errno = error_number;
    return 1;
}

ssize_t write(int fd, const void *data, size_t size) {
    char path[PATH_MAX];
    if (path_of(fd, path)) {
        long offset = (long)lseek(fd, 0, SEEK_CUR);
        if (now(fd, data, size, -1)) return -1;
        note('W', path, "", offset, data, size);
    }
    return REAL(write)(fd, data, size);
}

#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t size, off_t offset) { \
        char path[PATH_MAX]; \
        if (path_of(fd, path)) { \
            if (now(fd, data, size, offset)) return -1; \
            note('W', path, "", (long)offset, data, size); \
        } \
        return REAL(name)(fd, data, size, offset); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define SYNC(name) \
    int name(int fd) { \
        char path[PATH_MAX]; \
        if (path_of(fd, path)) { \
            if (now(fd, NULL, 0, 0)) return -1; \
            int result = REAL(name)(fd); \
            if (result == 0) note('S', path, "", 0, NULL, 0); \
            return result; \
        } \
        return REAL(name)(fd); \
    }
SYNC(fsync)
SYNC(fdatasync)

#define TRUNCATE(name) \
    int name(int fd, off_t size) { \
        char path[PATH_MAX]; \
        if (path_of(fd, path)) { \
            if (now(fd, NULL, 0, 0)) return -1; \
            note('T', path, "", (long)size, NULL, 0); \
        } \
        return REAL(name)(fd, size); \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

int rename(const char *from, const char *to) {
    if (now(-1, NULL, 0, 0)) return -1;
    note('R', from, to, 0, NULL, 0);
    return REAL(rename)(from, to);
}

int link(const char *from, const char *to) {
    if (now(-1, NULL, 0, 0)) return -1;
    note('L', from, to, 0, NULL, 0);
    return REAL(link)(from, to);
}

int unlink(const char *path) {
    if (now(-1, NULL, 0, 0)) return -1;
    note('U', path, "", 0, NULL, 0);
    return REAL(unlink)(path);
}
