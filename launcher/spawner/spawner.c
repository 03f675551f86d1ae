/* ddprun's end of the spawner. spawner_open() forks it before libuv starts. Each function after
 * that makes one request, which request() sends as one packet; those that start workers send
 * descriptors with it. Reports come back as packets, which spawner_receive() reads when the socket
 * is readable. Nothing waits, so that ddprun's loop never stands still: spawner_close() alone does,
 * at the end. What a request does is in spawner_main.c, serve_payload(). */
#include "spawner.h"

#include "spawner_wire.h"
#include "sweep.h"

#include "common/error.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int spawner_open(const struct runtime_dir_names *names, struct spawner *ret, struct co_error *err)
{
    int pair[2];
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return co_fail(err, -errno, "cannot become a child subreaper: %s", strerror(errno));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return co_fail(err, -errno, "cannot make a socket pair: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0) {
        int code = -errno;
        close(pair[0]);
        close(pair[1]);
        return co_fail(err, code, "cannot start another process: %s", strerror(-code));
    }
    if (pid == 0)
        spawner_main(pair[1], names); /* closes pair[0] with all else */
    close(pair[1]);
    *ret = (struct spawner){.pid = pid, .sock = pair[0]};
    return 0;
}

static int request(const struct spawner *n, const struct spawner_request *what, const int *fds,
                   size_t n_fds)
{
    int rc = spawner_wire_send(n->sock, what, sizeof *what, fds, n_fds);
    return rc == -ECONNRESET ? -EPIPE : rc;
}

void spawner_dismiss(struct spawner *n)
{
    if (n->pid == 0 || n->sock < 0)
        return;
    /* fails if it is gone already: all the better */
    request(n, &(struct spawner_request){.type = SPAWNER_DISMISS}, NULL, 0);
    close(n->sock);
    n->sock = -1;
}

void spawner_close(struct spawner *n, uint64_t deadline_ms)
{
    if (n->pid == 0)
        return;
    spawner_dismiss(n);
    while (waitpid(n->pid, NULL, WNOHANG) == 0 && sweep_await_child(deadline_ms)) {
    }
    *n = (struct spawner){0};
}

/* A descriptor that is in the list already is not sent twice. returns its index */
static uint8_t list_fd(int *fds, size_t *n_fds, int fd)
{
    size_t i = 1; /* the image has no reader */
    if (fd < 0)
        return SPAWNER_NO_FD;
    while (i < *n_fds && fds[i] != fd)
        i++;
    if (i == *n_fds)
        fds[(*n_fds)++] = fd;
    return (uint8_t)i;
}

int spawner_spawn(const struct spawner *n, int first_rank, int n_ranks, int image_fd,
                  const int fds[][SPAWN_N_FDS])
{
    struct spawner_request what = {
        .type = SPAWNER_SPAWN, .local_rank = first_rank, .n_ranks = n_ranks};
    int all[SPAWNER_MAX_FDS] = {image_fd};
    size_t n_all = 1;
    for (int i = 0; i < n_ranks; i++)
        for (int j = 0; j < SPAWN_N_FDS; j++)
            what.fd_of[i][j] = list_fd(all, &n_all, fds[i][j]);
    return request(n, &what, all, n_all);
}

int spawner_start_parent(const struct spawner *n, int image_fd, int notes_fd)
{
    struct spawner_request what = {.type = SPAWNER_PARENT, .n_ranks = 1};
    const int fds[] = {image_fd, notes_fd};
    memset(what.fd_of, SPAWNER_NO_FD, sizeof what.fd_of);
    what.fd_of[0][SPAWN_CHECKPOINT_FD] = 1;
    return request(n, &what, fds, 2);
}

int spawner_signal(const struct spawner *n, enum spawner_target target, int except, int sig)
{
    return request(n,
                   &(struct spawner_request){
                       .type = SPAWNER_SIGNAL, .local_rank = except, .target = target, .sig = sig},
                   NULL, 0);
}

int spawner_signal_one(const struct spawner *n, enum spawner_target target, int rank, int sig)
{
    return request(
        n,
        &(struct spawner_request){
            .type = SPAWNER_SIGNAL_ONE, .local_rank = rank, .target = target, .sig = sig},
        NULL, 0);
}

int spawner_renumber(const struct spawner *n, int from, int to)
{
    return request(
        n, &(struct spawner_request){.type = SPAWNER_RENUMBER, .local_rank = from, .n_ranks = to},
        NULL, 0);
}

int spawner_look(const struct spawner *n)
{
    return request(n, &(struct spawner_request){.type = SPAWNER_LOOK}, NULL, 0);
}

int spawner_watch(const struct spawner *n)
{
    return request(n, &(struct spawner_request){.type = SPAWNER_WATCH}, NULL, 0);
}

int spawner_sweep(const struct spawner *n, int sig)
{
    return request(n, &(struct spawner_request){.type = SPAWNER_SWEEP, .sig = sig}, NULL, 0);
}

int spawner_share_signals(const struct spawner *n, uint64_t ignored, uint64_t once)
{
    return request(
        n, &(struct spawner_request){.type = SPAWNER_SHARE, .ignored = ignored, .once = once}, NULL,
        0);
}

int spawner_set_lease(const struct spawner *n, uint64_t end_ms)
{
    return request(n, &(struct spawner_request){.type = SPAWNER_LEASE, .end_ms = end_ms}, NULL, 0);
}

int spawner_send_heartbeats(const struct spawner *n, int fd, uint64_t from_ms, uint64_t limit_ms)
{
    return request(n,
                   &(struct spawner_request){
                       .type = SPAWNER_HEARTBEAT, .from_ms = from_ms, .limit_ms = limit_ms},
                   &fd, 1);
}

int spawner_state_end(const struct spawner *n, uint64_t end_ms)
{
    return request(n, &(struct spawner_request){.type = SPAWNER_HEARTBEAT, .end_ms = end_ms}, NULL,
                   0);
}

int spawner_resume(const struct spawner *n, uint64_t from_ms)
{
    return request(n, &(struct spawner_request){.type = SPAWNER_RESUME, .from_ms = from_ms}, NULL,
                   0);
}

int spawner_receive(const struct spawner *n, struct spawner_report *ret)
{
    ssize_t got = recv(n->sock, ret, sizeof *ret, MSG_DONTWAIT);
    if (got == (ssize_t)sizeof *ret)
        return 1;
    return got < 0 && errno == EAGAIN ? -EAGAIN : 0;
}
