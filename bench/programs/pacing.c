/* pacing.c - for LD_PRELOAD: TCP connections of a process send no more than PACING_BYTES bytes per
 * second, each. It stands for a network that limits each connection. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

static void pace(int fd)
{
    const char *text = getenv("PACING_BYTES");
    unsigned rate = text != NULL ? (unsigned)strtoul(text, NULL, 10) : 0;
    const int saved = errno;

    if (fd >= 0 && rate > 0) /* sockets that are not TCP's ignore it */
        setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
    errno = saved;
}

int connect(int fd, const struct sockaddr *to, socklen_t length)
{
    int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");

    pace(fd);
    return next(fd, to, length);
}

int accept4(int fd, struct sockaddr *from, socklen_t *length, int flags)
{
    int (*next)(int, struct sockaddr *, socklen_t *, int) = dlsym(RTLD_NEXT, "accept4");
    const int taken = next(fd, from, length, flags);

    pace(taken);
    return taken;
}
