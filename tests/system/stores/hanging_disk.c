/* A disk that stops answering: syncs of files below $HANGING_BELOW wait as long as the file $HANGING_WHILE exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void hang(int fd) {
    const char *below = getenv("HANGING_BELOW"), *file = getenv("HANGING_WHILE");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (!below || !file || length < 0) return;
    path[length] = 0;
    if (strncmp(path, below, strlen(below)) != 0) return;
    while (access(file, F_OK) == 0) usleep(1000);
}

int fdatasync(int fd) {
    hang(fd);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}

int fsync(int fd) {
    hang(fd);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
