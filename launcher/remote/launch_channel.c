/* The node's end. launch_open() reports that this ddprun is up, reads the order to its end, and
 * sets the directory and the variables from it (obey()); main.c then reads the command line of the
 * order; launch_say_ready() sends the last line to the launching ddprun. From then on launch_watch
 * takes the signals that arrive. Read launch_open() first. */
#include "launch_channel.h"

#include "launcher/job/job_spec.h"

#include "common/error.h"
#include "common/parse.h"
#include "rendezvous/channel/channel_wire.h"
#include "rendezvous/channel/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef DDPRUN_VERSION
#error "the build gives the version"
#endif

enum { READ_BYTES = 65536, SIGNALS_BYTES = 256, TERMS_MAX_BYTES = 64 };

const char launch_word[] = "--launch-channel";

bool launch_is_asked_for(int argc, char *const *argv)
{
    return argc == 2 && strcmp(argv[1], launch_word) == 0;
}

bool launch_is_asked_for_terms(int argc, char *const *argv)
{
    return argc == 2 && strcmp(argv[1], "--launch-terms") == 0;
}

#define TEXT_OF(number) #number
#define TEXT(number)    TEXT_OF(number)
#define MARK            "ddprun-launch-terms "
#define VERSIONS        DDPRUN_VERSION "/" TEXT(LAUNCH_PROTOCOL) "/" TEXT(CHANNEL_WIRE_VERSION)

enum { MARK_BYTES = sizeof MARK - 1 };

static const char marked_terms[] = MARK VERSIONS; /* also found in the program's bytes */

const char *launch_terms(void)
{
    return marked_terms + MARK_BYTES;
}

const char *launch_terms_in(const uint8_t *bytes, size_t len)
{
    const uint8_t *at = memmem(bytes, len, marked_terms, MARK_BYTES);
    if (at == NULL)
        return NULL;
    at += MARK_BYTES;
    const size_t n_left = (size_t)(bytes + len - at);
    const size_t most = n_left < TERMS_MAX_BYTES ? n_left : TERMS_MAX_BYTES;
    return memchr(at, '\0', most) != NULL ? (const char *)at : NULL;
}

static void say_line(enum launch_line which, const char *from)
{
    char line[LAUNCH_FROM_BYTES + 32];
    int n = launch_print_line(which, from, line, sizeof line);
    ssize_t written = write(STDOUT_FILENO, line, (size_t)n);
    (void)written; /* if the launching ddprun is gone, the launch channel ends */
}

void launch_say_ready(void)
{
    say_line(LAUNCH_READY, "");
}

/* The address of the launching ddprun as this node saw it: most likely, others can reach it
 * there. */
static const char *find_from(char from[LAUNCH_FROM_BYTES])
{
    const char *ssh = getenv("SSH_CONNECTION"), *slurm = getenv("SLURM_LAUNCH_NODE_IPADDR");
    const char *address = ssh != NULL ? ssh : slurm != NULL ? slurm : "";
    size_t n = strcspn(address, " ");
    snprintf(from, LAUNCH_FROM_BYTES, "%.*s", n < LAUNCH_FROM_BYTES ? (int)n : 0, address);
    return from;
}

/* Nothing follows an order before we are ready, so no bytes need to be kept. */
static int read_order(int fd, struct co_buf *in, struct co_error *err)
{
    for (;;) {
        ssize_t whole = launch_order_len(co_buf_bytes(in), co_buf_len(in));
        if (whole != 0)
            return whole > 0
                       ? 0
                       : co_fail(err, (int)whole, "protocol error: the launch request is too long");
        uint8_t *room = co_buf_room(in, READ_BYTES);
        if (room == NULL)
            return co_fail(err, -ENOMEM, "out of memory");
        ssize_t n = read(fd, room, READ_BYTES);
        if (n == 0 || (n < 0 && errno != EINTR))
            return co_fail(err, -EPIPE, "lost contact with the launching ddprun");
        co_buf_added(in, n > 0 ? (size_t)n : 0);
    }
}

static int obey(struct launch_channel *l, const char *from, struct co_error *err)
{
    const struct launch_order *o = &l->order;
    const char *host = o->host[0] != '\0' ? o->host : from;
    if (host[0] == '\0')
        return co_fail(
            err, -EPROTO,
            "cannot determine the address of the launching host (SSH_CONNECTION and "
            "SLURM_LAUNCH_NODE_IPADDR are unset); pass --local-addr to the launching ddprun");
    l->endpoint = co_format(strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", host, o->port);
    if (l->endpoint == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    for (char **v = o->env; *v != NULL; v++) {
        char *equals = strchr(*v, '=');
        *equals = '\0';
        if (setenv(*v, equals + 1, 1) < 0)
            return co_fail(err, -errno, "cannot set %.100s: %s", *v, strerror(errno));
    }
    if (chdir(o->dir) < 0)
        return co_fail(
            err, -errno,
            "cannot change to directory '%.300s': %s; use --wdir to start in another one", o->dir,
            strerror(errno));
    snprintf(l->n_ranks, sizeof l->n_ranks, "%u", o->n_ranks);
    l->assignment = (struct node_assignment){.by = "the launching ddprun",
                                             .is_whole = true,
                                             .name = o->name,
                                             .nodes = o->nodes,
                                             .endpoint = l->endpoint,
                                             .run_id = o->run_id};
    return 0;
}

int launch_open(int null_fd, struct launch_channel *ret, struct co_error *err)
{
    char from[LAUNCH_FROM_BYTES];
    struct co_buf in = {.has_secrets = true};
    struct launch_channel l = {.fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)};
    if (l.fd < 0 || dup2(null_fd, STDIN_FILENO) < 0)
        return co_fail(err, -errno, "cannot take over standard input: %s", strerror(errno));
    say_line(LAUNCH_UP, find_from(from));
    int rc = read_order(l.fd, &in, err);
    size_t len = co_buf_len(&in);
    l.bytes = rc == 0 ? malloc(len) : NULL;
    if (rc == 0 && l.bytes == NULL)
        rc = co_fail(err, -ENOMEM, "out of memory");
    if (rc == 0) {
        memcpy(l.bytes, co_buf_bytes(&in), len);
        l.n_bytes = len;
        rc = launch_take_order(l.bytes, len, &l.order, err);
    }
    co_buf_fini(&in);
    if (rc == 0)
        rc = obey(&l, from, err);
    if (rc < 0) {
        launch_close(&l);
        return rc;
    }
    *ret = l;
    if (ret->order.n_ranks > 0)
        ret->assignment.n_ranks = ret->n_ranks;
    return 0;
}

void launch_close(struct launch_channel *l)
{
    launch_order_fini(&l->order);
    if (l->bytes != NULL)
        explicit_bzero(l->bytes, l->n_bytes); /* the token, if it did not become a key */
    free(l->bytes);
    free(l->endpoint);
    if (l->fd > 0)
        close(l->fd);
    *l = (struct launch_channel){0};
}

int launch_make_key(struct launch_channel *l, struct job_world *w, struct co_error *err)
{
    char *digits = (char *)l->order.token;
    const size_t n = strlen(digits);
    int rc = seal_key_create(digits, n, &w->key, err);
    explicit_bzero(digits, n);
    return rc;
}

/* --- while the node runs --- */

struct launch_watch {
    uv_poll_t poll;
    int fd;
    struct launch_watch_callbacks callbacks;
    struct co_buf in;
    bool closing;
};

/* A sender of anything else is not, or no longer, the launching ddprun. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct launch_watch *w = poll->data;
    uint8_t *room = co_buf_room(&w->in, SIGNALS_BYTES);
    ssize_t n = room != NULL ? read(w->fd, room, SIGNALS_BYTES) : 0;
    int sig = 0;
    (void)status, (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    co_buf_added(&w->in, n > 0 ? (size_t)n : 0);
    while (!w->closing && n > 0 && (sig = launch_take_signal(&w->in)) > 0)
        w->callbacks.on_signal(w->callbacks.arg, sig);
    if (w->closing || (n > 0 && sig >= 0))
        return;
    uv_poll_stop(&w->poll);
    w->callbacks.on_gone(w->callbacks.arg);
}

/* A pipe or a socket of our own: no other process reads from it. */
int launch_watch_open(uv_loop_t *loop, int fd, const struct launch_watch_callbacks *callbacks,
                      struct launch_watch **ret, struct co_error *err)
{
    struct launch_watch *w = calloc(1, sizeof *w);
    if (w == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    w->fd = fd;
    w->callbacks = *callbacks;
    w->poll.data = w;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    int rc = uv_poll_init(loop, &w->poll, fd);
    if (rc < 0) {
        free(w);
        return co_fail(err, rc, "cannot watch the launch channel: %s", uv_strerror(rc));
    }
    uv_poll_start(&w->poll, UV_READABLE | UV_DISCONNECT, on_readable);
    *ret = w;
    return 0;
}

static void on_watch_closed(uv_handle_t *handle)
{
    struct launch_watch *w = handle->data;
    co_buf_fini(&w->in);
    free(w);
}

void launch_watch_close(struct launch_watch *w)
{
    if (w == NULL)
        return;
    w->closing = true;
    uv_close((uv_handle_t *)&w->poll, on_watch_closed);
}
