/* Preloaded into a process under test: calls on files of one folder fail as FAULTS_PLAN says, "write 28" or "sync 5".
   An empty or missing plan is no fault. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static ssize_t (*real_write)(int, const void *, size_t);

static int fault(const char *call, int fd) {
    const char *folder = getenv("FAULTS_FOLDER"), *plan = getenv("FAULTS_PLAN");
    char link[64], path[4096], wanted[32];
    int number = 0;
    if (!folder || !plan) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (strncmp(path, folder, strlen(folder))) return 0;
    FILE *file = fopen(plan, "r");
    if (!file) return 0;
    int found = fscanf(file, "%31s %d", wanted, &number);
    fclose(file);
    return found == 2 && !strcmp(wanted, call) ? number : 0;
}

#define FAIL(call, fd) do { int error = fault(call, fd); if (error) { errno = error; return -1; } } while (0)

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t at) {
    FAIL("write", fd);
    return ((ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64"))(fd, data, count, at);
}
ssize_t pwrite(int fd, const void *data, size_t count, off_t at) {
    FAIL("write", fd);
    return ((ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite"))(fd, data, count, at);
}
ssize_t write(int fd, const void *data, size_t count) {
    if (!real_write) real_write = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    FAIL("write", fd);
    return real_write(fd, data, count);
}
int posix_fallocate64(int fd, off64_t at, off64_t count) { /* gives the error, and leaves errno alone */
    int error = fault("write", fd);
    if (error) return error;
    return ((int (*)(int, off64_t, off64_t))dlsym(RTLD_NEXT, "posix_fallocate64"))(fd, at, count);
}
int posix_fallocate(int fd, off_t at, off_t count) {
    int error = fault("write", fd);
    if (error) return error;
    return ((int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate"))(fd, at, count);
}
int fdatasync(int fd) {
    FAIL("sync", fd);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
int fsync(int fd) {
    FAIL("sync", fd);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
