/* Moves the wall clock of one process: CLOCK_REALTIME is off by the seconds in a shared file, every other clock is right.
 *
 * Loaded with LD_PRELOAD. KRAFTLIB_CHAOS_CLOCK names the file: one 64-bit integer in the byte order of the machine.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_s;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void map_offset(void) {
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("KRAFTLIB_CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *offset_s, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) offset_s = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real_clock_gettime) map_offset(); /* called by another constructor before ours */
    int status = real_clock_gettime(clock, now);
    if (status == 0 && clock == CLOCK_REALTIME && offset_s) now->tv_sec += *offset_s;
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}
