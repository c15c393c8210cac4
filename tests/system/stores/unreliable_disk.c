/* A disk as a process sees it, when loaded before the C library.
   It hangs: syncs of files below $HANGING_BELOW wait as long as the file $HANGING_WHILE exists.
   It forgets: each sync notes the file's inode and size in $SYNCED, so that what came later can be taken away.
   Files that are open for synced writes have their size beforehand: such a write is noted before it is made, with its
   place, and again when it is safe. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void hang(int fd) {
    const char *below = getenv("HANGING_BELOW"), *file = getenv("HANGING_WHILE");
    char link[64], path[4096];
    if (!below || !file) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    if (strncmp(path, below, strlen(below)) != 0) return;
    while (access(file, F_OK) == 0) usleep(1000);
}

static void note(const struct stat *before) {
    const char *file = getenv("SYNCED");
    char line[64];
    if (!file) return;
    int length = snprintf(line, sizeof line, "%lu %ld\n", (unsigned long)before->st_ino, (long)before->st_size);
    int out = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (out < 0 || write(out, line, length) != length) abort();
    close(out);
}

static int synced(int fd, const char *name) {
    struct stat before;
    hang(fd);
    if (fstat(fd, &before) != 0) abort();
    int result = ((int (*)(int))dlsym(RTLD_NEXT, name))(fd);
    if (result == 0) note(&before);
    return result;
}

static void note_write(int fd, char what, off_t at, size_t count) {
    const char *file = getenv("SYNCED");
    struct stat found;
    char line[96];
    if (!file) return;
    if (fstat(fd, &found) != 0) abort();
    int length = snprintf(line, sizeof line, "%c %lu %ld %lu\n", what, (unsigned long)found.st_ino, (long)at,
                          (unsigned long)count);
    int out = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (out < 0 || write(out, line, length) != length) abort();
    close(out);
}

ssize_t pwrite64(int fd, const void *data, size_t count, off_t at) {
    int is_synced = fcntl(fd, F_GETFL) & O_DSYNC;
    if (is_synced) note_write(fd, 'w', at, count);
    if (is_synced) hang(fd);
    ssize_t written = ((ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64"))(fd, data, count, at);
    if (is_synced && written == (ssize_t)count) note_write(fd, 's', at, count);
    return written;
}

int fdatasync(int fd) { return synced(fd, "fdatasync"); }

int fsync(int fd) { return synced(fd, "fsync"); }
