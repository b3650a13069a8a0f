/* Adds SLOW_SYNC_US microseconds to each fsync and fdatasync of a file whose path begins with
 * SLOW_SYNC_BELOW. Loaded with LD_PRELOAD, so that the real call is made as well. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int is_slow(int descriptor) {
    const char *below = getenv("SLOW_SYNC_BELOW");
    char name[64], path[4096];
    if (below == NULL) return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(name, path, sizeof path - 1);
    return length > 0 && strncmp(path, below, strlen(below)) == 0;
}

static int synced(const char *call, int descriptor) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, call);
    const char *us = getenv("SLOW_SYNC_US");
    if (us != NULL && is_slow(descriptor)) {
        long ns = atol(us) * 1000;
        struct timespec delay = {ns / 1000000000, ns % 1000000000};
        while (nanosleep(&delay, &delay) != 0) {}
    }
    return real(descriptor);
}

int fsync(int descriptor) { return synced("fsync", descriptor); }
int fdatasync(int descriptor) { return synced("fdatasync", descriptor); }
