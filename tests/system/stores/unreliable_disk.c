/* A disk as a process sees it, when loaded before the C library.
   It hangs: syncs of files below $HANGING_BELOW wait as long as the file $HANGING_WHILE exists.
   It forgets: each sync notes the file's inode and size in $SYNCED, so that what came later can be taken away. */
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

int fdatasync(int fd) { return synced(fd, "fdatasync"); }

int fsync(int fd) { return synced(fd, "fsync"); }
