/* nothing_server.c - the lower bound for a key-value server: an epoll loop that reads requests and
 * replies with zeros, and knows only the lengths of requests and replies.
 *
 *     nothing_server REQUEST:REPLY [REQUEST:REPLY]    bytes, in turn on each connection
 *
 * Prints its port; runs until a signal ends it. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_EVENTS = 512, MAX_FDS = 65536 };

struct turn {
    unsigned request_bytes, reply_bytes;
};

static struct turn turns[2];
static int n_turns;
static struct {
    unsigned n_read, turn;
} clients[MAX_FDS];

static void die(const char *what)
{
    fprintf(stderr, "nothing_server: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int listen_somewhere(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 4096) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) < 0)
        die("cannot listen");
    printf("%u\n", ntohs(a.sin_port));
    fflush(stdout);
    return fd;
}

static void watch(int epoll, int fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0)
        die("epoll_ctl");
}

static void accept_all(int epoll, int listener)
{
    const int on = 1;
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        if (fd >= MAX_FDS) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        clients[fd].n_read = clients[fd].turn = 0;
        watch(epoll, fd);
    }
}

static void serve(int fd)
{
    static char bytes[1 << 16];
    static const char zeros[1 << 16];
    ssize_t n = read(fd, bytes, sizeof bytes);
    size_t n_reply = 0;
    if (n <= 0) {
        close(fd);
        return;
    }
    clients[fd].n_read += (unsigned)n;
    for (struct turn *t; (t = &turns[clients[fd].turn])->request_bytes <= clients[fd].n_read;) {
        clients[fd].n_read -= t->request_bytes;
        clients[fd].turn = (clients[fd].turn + 1) % (unsigned)n_turns;
        n_reply += t->reply_bytes;
    }
    if (n_reply > 0 && n_reply <= sizeof zeros && write(fd, zeros, n_reply) < 0)
        close(fd);
}

int main(int argc, char **argv)
{
    struct epoll_event events[MAX_EVENTS];
    for (n_turns = 0; n_turns < argc - 1 && n_turns < 2; n_turns++)
        if (sscanf(argv[n_turns + 1], "%u:%u", &turns[n_turns].request_bytes,
                   &turns[n_turns].reply_bytes) != 2 ||
            turns[n_turns].request_bytes == 0)
            n_turns = argc;
    if (n_turns != argc - 1 || n_turns == 0) {
        fprintf(stderr, "usage: nothing_server REQUEST:REPLY [REQUEST:REPLY]\n");
        return 2;
    }
    int epoll = epoll_create1(EPOLL_CLOEXEC), listener = listen_somewhere();
    watch(epoll, listener);
    for (;;) {
        int n = epoll_wait(epoll, events, MAX_EVENTS, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener)
                accept_all(epoll, listener);
            else
                serve(events[i].data.fd);
        }
    }
}
