#include "health_probe.h"

#include "health_facts.h"
#include "nvml.h"

#include "common/clock.h"
#include "common/error.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_AGAIN_MS = 100 };

struct request {
    uint32_t wait_ms;
    bool has_first;
    struct health_facts first;
};

/* --- In the process --- */

static void read_all(const struct health_probe_opts *o, struct nvml *nvml, const char *trouble,
                     struct health_facts *ret)
{
    health_facts_read(o->checks, o->root, o->log_dir, ret);
    nvml_read(nvml, ret);
    strcpy(ret->gpu_trouble, trouble);
    if (o->fabric)
        nvml_read_fabric(nvml, ret);
}

/* A driver frees the memory of a process that has ended a moment later. */
static void answer(const struct health_probe_opts *o, struct nvml *nvml, const char *trouble,
                   const struct request *r, struct health_facts *ret)
{
    const struct timespec pause = {.tv_nsec = LOOK_AGAIN_MS * 1000000};
    const uint64_t end_ms = co_now_ms() + r->wait_ms;
    for (;;) {
        read_all(o, nvml, trouble, ret);
        if (!r->has_first || !health_checks_keeps_memory(&r->first, ret) || co_now_ms() >= end_ms)
            return;
        nanosleep(&pause, NULL);
    }
}

static void keep_only(int sock)
{
    if (sock > STDERR_FILENO + 1)
        syscall(SYS_close_range, STDERR_FILENO + 1, sock - 1, 0);
    syscall(SYS_close_range, sock + 1, ~0U, 0);
}

static _Noreturn void live(const struct health_probe_opts *o, pid_t ddprun, int sock)
{
    static struct request r;
    static struct health_facts facts;
    char trouble[HEALTH_TEXT_BYTES] = "";
    struct nvml *nvml = NULL;
    const struct rlimit no_core = {0, 0};
    sigset_t none;
    sigemptyset(&none);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, sig == SIGPIPE ? SIG_IGN : SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != ddprun || setsid() < 0)
        _exit(1);
    prctl(PR_SET_NAME, "ddp-health");
    setrlimit(RLIMIT_CORE, &no_core);
    keep_only(sock);
    if (o->checks->gpu || o->fabric)
        nvml_open(o->nvml, o->visible, &nvml, trouble);
    while (recv(sock, &r, sizeof r, 0) == (ssize_t)sizeof r) {
        answer(o, nvml, trouble, &r, &facts);
        if (send(sock, &facts, sizeof facts, 0) != (ssize_t)sizeof facts)
            break;
    }
    nvml_close(nvml);
    _exit(0);
}

/* --- In ddprun --- */

/* A packet has all facts of a node. */
static int make_pair(int pair[2])
{
    const int bytes = 4 * (int)sizeof(struct request);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    for (int i = 0; i < 2; i++)
        setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    return 0;
}

/* Reap those that have ended since they were killed. returns a free entry; NULL: all are in use */
static pid_t *reap(struct health_probe *p)
{
    pid_t *unused = NULL;
    for (int i = 0; i < HEALTH_PROBE_HELD_MAX; i++) {
        if (p->held[i] != 0 && waitpid(p->held[i], NULL, WNOHANG) != 0)
            p->held[i] = 0;
        if (p->held[i] == 0)
            unused = &p->held[i];
    }
    return unused;
}

int health_probe_start(const struct health_probe_opts *opts, struct health_probe *p,
                       struct co_error *err)
{
    const pid_t ddprun = getpid();
    int pair[2];
    if (reap(p) == NULL)
        return co_fail(err, -EBUSY, "a file system or a driver holds the processes of %d checks",
                       HEALTH_PROBE_HELD_MAX);
    int rc = make_pair(pair);
    if (rc < 0)
        return co_fail(err, rc, "cannot make a socket: %s", strerror(-rc));
    const pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        live(opts, ddprun, pair[1]);
    }
    rc = pid < 0 ? -errno : 0;
    close(pair[1]);
    if (rc < 0) {
        close(pair[0]);
        return co_fail(err, rc, "cannot fork: %s", strerror(-rc));
    }
    p->pid = pid;
    p->sock = pair[0];
    return 0;
}

int health_probe_ask(const struct health_probe *p, const struct health_facts *first,
                     uint32_t wait_ms)
{
    struct request r = {.wait_ms = wait_ms, .has_first = first != NULL};
    if (first != NULL)
        r.first = *first;
    return send(p->sock, &r, sizeof r, MSG_NOSIGNAL) == (ssize_t)sizeof r ? 0 : -errno;
}

int health_probe_receive(const struct health_probe *p, struct health_facts *ret)
{
    const ssize_t n = recv(p->sock, ret, sizeof *ret, 0);
    if (n == (ssize_t)sizeof *ret)
        return 1;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? -EAGAIN : 0;
}

void health_probe_stop(struct health_probe *p)
{
    if (p->sock >= 0)
        close(p->sock);
    if (p->pid > 0) {
        kill(p->pid, SIGKILL);
        *reap(p) = p->pid; /* health_probe_start() has found an entry for it */
    }
    reap(p);
    p->pid = 0;
    p->sock = -1;
}
