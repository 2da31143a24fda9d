/* Preloaded into a process under test: every change of a file under RECORDER_FOLDER, and every sync, is noted in
   RECORDER_LOG in the order in which they happened. What is written to RECORDER_MARKS is noted as a mark among them.

   A note is {kind, inode, place, length} and `length` bytes: data, or a path relative to the folder. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER; /* held over a call and its note: a sync covers what came before */
static const char *folder, *marks;
static int out = -1;

struct head {
    uint64_t kind, inode, place, length;
};

__attribute__((constructor)) static void begin(void) {
    const char *log = getenv("RECORDER_LOG");
    folder = getenv("RECORDER_FOLDER");
    marks = getenv("RECORDER_MARKS");
    if (folder && log) out = open(log, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    unsetenv("LD_PRELOAD"); /* not for children */
}

static void note(char kind, uint64_t inode, uint64_t place, const void *data, size_t length) {
    struct head head = {(uint64_t)kind, inode, place, length};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)data, length}};
    int before = errno;
    if (writev(out, parts, 2) != (ssize_t)(sizeof head + length)) abort(); /* half a record would prove anything */
    errno = before;
}

/* The path below the folder, or NULL. */
static const char *below(const char *path) {
    size_t length = folder ? strlen(folder) : 0;
    if (out < 0 || strncmp(path, folder, length)) return NULL;
    return path[length] == '/' ? path + length + 1 : path[length] ? NULL : "";
}

static const char *named(int fd, char *path, size_t room) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, room - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    return path;
}

static uint64_t inode(int fd) {
    struct stat found;
    return fstat(fd, &found) ? 0 : found.st_ino;
}

static const char *whole(const char *path, char *room, size_t size) {
    char here[4096];
    if (path[0] == '/' || !getcwd(here, sizeof here)) return path;
    snprintf(room, size, "%s/%s", here, path);
    return room;
}

#define REAL(name, type) ((type)dlsym(RTLD_NEXT, #name))
#define LOCK() pthread_mutex_lock(&order)
#define UNLOCK() pthread_mutex_unlock(&order)

static void wrote(int fd, uint64_t place, const void *data, ssize_t count) {
    char path[4096];
    if (out < 0 || count <= 0 || !named(fd, path, sizeof path)) return;
    if (marks && !strcmp(path, marks)) note('X', 0, 0, data, count);
    else if (below(path)) note('W', inode(fd), place, data, count);
}

ssize_t write(int fd, const void *data, size_t count) {
    if (out < 0 || fd == out) return REAL(write, ssize_t (*)(int, const void *, size_t))(fd, data, count);
    LOCK();
    off_t place = lseek(fd, 0, SEEK_CUR);
    ssize_t done = REAL(write, ssize_t (*)(int, const void *, size_t))(fd, data, count);
    wrote(fd, place < 0 ? 0 : place, data, done);
    UNLOCK();
    return done;
}

#define PWRITE(name, offset) \
    ssize_t name(int fd, const void *data, size_t count, offset place) { \
        LOCK(); \
        ssize_t done = REAL(name, ssize_t (*)(int, const void *, size_t, offset))(fd, data, count, place); \
        wrote(fd, place, data, done); \
        UNLOCK(); \
        return done; \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define TRUNCATE(name, offset) \
    int name(int fd, offset size) { \
        char path[4096]; \
        LOCK(); \
        int done = REAL(name, int (*)(int, offset))(fd, size); \
        if (!done && named(fd, path, sizeof path) && below(path)) note('T', inode(fd), size, "", 0); \
        UNLOCK(); \
        return done; \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define ALLOCATE(name, offset) \
    int name(int fd, offset place, offset count) { \
        char path[4096]; \
        struct stat found; \
        LOCK(); \
        int done = REAL(name, int (*)(int, offset, offset))(fd, place, count); \
        if (!done && named(fd, path, sizeof path) && below(path) && !fstat(fd, &found)) \
            note('T', found.st_ino, found.st_size, "", 0); \
        UNLOCK(); \
        return done; \
    }
ALLOCATE(posix_fallocate, off_t)
ALLOCATE(posix_fallocate64, off64_t)

#define SYNC(name) \
    int name(int fd) { \
        char path[4096]; \
        const char *place; \
        LOCK(); \
        int done = REAL(name, int (*)(int))(fd); \
        if (!done && named(fd, path, sizeof path) && (place = below(path))) \
            note('S', inode(fd), 0, place, strlen(place)); \
        UNLOCK(); \
        return done; \
    }
SYNC(fsync)
SYNC(fdatasync)

static int opening(const char *symbol, int at, const char *path, int flags, mode_t mode) {
    char found_as[4096];
    struct stat found;
    const char *place;
    LOCK();
    int is_new = flags & O_CREAT && fstatat(at, path, &found, AT_SYMLINK_NOFOLLOW);
    int fd = ((int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, symbol))(at, path, flags, mode);
    if (fd >= 0 && out >= 0 && flags & (O_CREAT | O_TRUNC) && named(fd, found_as, sizeof found_as) &&
        (place = below(found_as))) {
        if (is_new) note('C', inode(fd), 0, place, strlen(place));
        else if (flags & O_TRUNC) note('T', inode(fd), 0, "", 0);
    }
    UNLOCK();
    return fd;
}

#define MODE(flags, mode) \
    do { \
        if ((flags) & O_CREAT) { \
            va_list more; \
            va_start(more, flags); \
            mode = va_arg(more, mode_t); \
            va_end(more); \
        } \
    } while (0)

int open(const char *path, int flags, ...) {
    mode_t mode = 0;
    MODE(flags, mode);
    return opening("openat", AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    mode_t mode = 0;
    MODE(flags, mode);
    return opening("openat64", AT_FDCWD, path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
    mode_t mode = 0;
    MODE(flags, mode);
    return opening("openat", at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...) {
    mode_t mode = 0;
    MODE(flags, mode);
    return opening("openat64", at, path, flags, mode);
}

#define GONE(name) \
    int name(const char *path) { \
        char room[4096]; \
        const char *place; \
        LOCK(); \
        int done = REAL(name, int (*)(const char *))(path); \
        if (!done && (place = below(whole(path, room, sizeof room)))) note('U', 0, 0, place, strlen(place)); \
        UNLOCK(); \
        return done; \
    }
GONE(unlink)
GONE(rmdir)

int mkdir(const char *path, mode_t mode) {
    char room[4096];
    const char *place;
    LOCK();
    int done = REAL(mkdir, int (*)(const char *, mode_t))(path, mode);
    if (!done && (place = below(whole(path, room, sizeof room)))) note('M', 0, 0, place, strlen(place));
    UNLOCK();
    return done;
}

int rename(const char *old, const char *new) {
    char room[4096], other[4096], both[8192];
    LOCK();
    int done = REAL(rename, int (*)(const char *, const char *))(old, new);
    const char *from = below(whole(old, room, sizeof room)), *to = below(whole(new, other, sizeof other));
    if (!done && from && to) {
        int length = snprintf(both, sizeof both, "%s%c%s", from, 0, to);
        note('R', 0, 0, both, length);
    }
    UNLOCK();
    return done;
}

/* Copies that bypass write: whoever asks falls back to it. */
ssize_t sendfile(int to, int from, off_t *place, size_t count) {
    (void)to, (void)from, (void)place, (void)count;
    errno = ENOTSOCK;
    return -1;
}
ssize_t sendfile64(int to, int from, off64_t *place, size_t count) {
    (void)to, (void)from, (void)place, (void)count;
    errno = ENOTSOCK;
    return -1;
}
