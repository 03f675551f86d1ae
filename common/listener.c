#include "listener.h"

#include "clock.h"

#include <errno.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>

uint64_t co_raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return UINT64_MAX;
    const struct rlimit raised = {limit.rlim_max, limit.rlim_max};
    if (limit.rlim_cur < limit.rlim_max && setrlimit(RLIMIT_NOFILE, &raised) == 0)
        limit = raised;
    return limit.rlim_cur;
}

bool co_is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static int rest_left_ms(const struct co_listener *l)
{
    return l->rests_till_ms == 0 ? 0 : co_left_ms(l->rests_till_ms);
}

int co_listener_accept(struct co_listener *l, int flags)
{
    if (rest_left_ms(l) > 0)
        return -EAGAIN;
    l->rests_till_ms = 0;
    const int fd = accept4(l->fd, NULL, NULL, flags);
    if (fd >= 0)
        return fd;
    const int error = errno;
    if (co_is_shortage(error))
        l->rests_till_ms = co_deadline_ms(CO_LISTENER_REST_MS);
    return -error;
}

struct pollfd co_listener_poll(const struct co_listener *l)
{
    return (struct pollfd){.fd = rest_left_ms(l) > 0 ? -1 : l->fd, .events = POLLIN};
}

int co_listener_wait_ms(const struct co_listener *l, int timeout_ms)
{
    const int rest_ms = rest_left_ms(l);
    return rest_ms > 0 && (timeout_ms < 0 || timeout_ms > rest_ms) ? rest_ms : timeout_ms;
}
