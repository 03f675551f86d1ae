/* jumping_clock - a test double of the wall clock, to be preloaded: each reading is an hour ahead
 * or an hour late, in turn. Other clocks are the machine's. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/time.h>
#include <time.h>

typedef int clock_gettime_fn(clockid_t clock, struct timespec *ret);

static time_t jump(void)
{
    static atomic_uint n_looks;
    return atomic_fetch_add(&n_looks, 1) % 2 == 0 ? 3600 : -3600;
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    static _Atomic(clock_gettime_fn *) real;
    clock_gettime_fn *f = atomic_load(&real);
    if (f == NULL) {
        f = (clock_gettime_fn *)(uintptr_t)dlsym(RTLD_NEXT, "clock_gettime");
        atomic_store(&real, f);
    }
    int rc = f(clock, ret);
    if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        ret->tv_sec += jump();
    return rc;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *ret = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *ret)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (ret != NULL)
        *ret = now.tv_sec;
    return now.tv_sec;
}
