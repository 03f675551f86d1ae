#include "console.h"

#include "job_directory.h"
#include "job_request.h"

#include "common/error.h"
#include "common/listener.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The happy path: the listener is readable, a client is taken into a free place, its line is read
 * and handed on, the answer is written as far as the socket takes it, and the rest when the socket
 * takes it. A client has one deadline, set again when a request has come and when an answer is
 * sent.
 *
 * A client ends in one place, client_close(): its end of the connection, a line too long, its
 * deadline, or ours. Its place is free again when the loop has closed its handles. */

enum client_state {
    CLIENT_FREE,
    CLIENT_READS,   /* a request is awaited */
    CLIENT_WAITS,   /* for its answer */
    CLIENT_WRITES,  /* the answer is on its way */
    CLIENT_CLOSING, /* handles are being closed */
};

struct console_client {
    struct console *c;
    enum client_state state;
    int fd;
    int n_handles;  /* not closed yet */
    bool is_asking; /* on_request() is under way */
    uv_poll_t poll;
    uv_timer_t deadline;
    char in[JOB_REQUEST_BYTES];
    size_t n_in;
    char *out; /* owned */
    size_t n_out, n_written;
};

struct console {
    struct console_opts opts;
    uv_loop_t *loop;
    int fd; /* of the listener; -1: closed */
    bool is_paused;
    uv_poll_t poll;
    uv_timer_t pause;
    int n_handles; /* its own, and places that are not free */
    struct console_client clients[CONSOLE_MAX_CLIENTS];
};

static void on_connection(uv_poll_t *poll, int status, int events);
static void take_requests(struct console_client *client);

static void unref(struct console *c)
{
    if (--c->n_handles == 0)
        free(c);
}

/* Listen for more, or not. */
static void set_heard(struct console *c, bool is_heard)
{
    if (c->fd < 0 || c->is_paused == !is_heard)
        return;
    c->is_paused = !is_heard;
    if (is_heard)
        uv_poll_start(&c->poll, UV_READABLE, on_connection);
    else
        uv_poll_stop(&c->poll);
}

static void on_client_handle_closed(uv_handle_t *handle)
{
    struct console_client *client = handle->data;
    struct console *c = client->c;
    if (--client->n_handles > 0)
        return;
    client->state = CLIENT_FREE;
    set_heard(c, true);
    unref(c);
}

static void client_close(struct console_client *client)
{
    if (client->state == CLIENT_CLOSING || client->state == CLIENT_FREE)
        return;
    client->state = CLIENT_CLOSING;
    client->n_handles = 2;
    uv_close((uv_handle_t *)&client->poll, on_client_handle_closed);
    uv_close((uv_handle_t *)&client->deadline, on_client_handle_closed);
    close(client->fd);
    client->fd = -1;
    free(client->out);
    client->out = NULL;
}

/* It has hung up, or was dropped: the module that works for it must know. */
static void client_lose(struct console_client *client)
{
    const struct console_opts *opts = &client->c->opts;
    if (client->state == CLIENT_WAITS && opts->on_gone != NULL)
        opts->on_gone(opts->arg, client);
    client_close(client);
}

static void on_deadline(uv_timer_t *timer)
{
    client_lose(timer->data);
}

static void set_deadline(struct console_client *client)
{
    uv_update_time(client->c->loop);
    uv_timer_start(&client->deadline, on_deadline, client->c->opts.idle_ms, 0);
}

/* --- Answers --- */

static void watch(struct console_client *client, int events);

/* returns whether all of it is gone */
static bool write_some(struct console_client *client)
{
    while (client->n_written < client->n_out) {
        ssize_t n = send(client->fd, client->out + client->n_written,
                         client->n_out - client->n_written, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (errno != EAGAIN)
                client_close(client);
            return false;
        }
        client->n_written += (size_t)n;
    }
    return true;
}

static void write_on(struct console_client *client)
{
    if (!write_some(client)) {
        if (client->state == CLIENT_WRITES)
            watch(client, UV_WRITABLE);
        return;
    }
    free(client->out);
    client->out = NULL;
    client->state = CLIENT_READS;
    set_deadline(client);
    watch(client, UV_READABLE);
    if (!client->is_asking)
        take_requests(client);
}

/* The end of the line takes the place of the NUL. */
void console_answer(struct console_client *client, char *text)
{
    if (text == NULL) {
        client_close(client);
        return;
    }
    client->out = text;
    client->n_out = strlen(text);
    client->out[client->n_out++] = '\n';
    client->n_written = 0;
    client->state = CLIENT_WRITES;
    set_deadline(client);
    write_on(client);
}

void console_refuse(struct console_client *client, const char *why)
{
    json_t *answer = json_pack("{s:i,s:s}", "v", 1, "error", why);
    console_answer(client, json_dumps(answer, JSON_COMPACT));
    json_decref(answer);
}

/* --- Requests --- */

static void take_request(struct console_client *client, size_t len)
{
    struct job_request r;
    struct co_error err;
    int rc = job_request_read(client->in, len, &r, &err);
    client->n_in -= len + 1;
    memmove(client->in, client->in + len + 1, client->n_in);
    client->state = CLIENT_WAITS;
    uv_timer_stop(&client->deadline); /* the module that answers has its own */
    watch(client, UV_DISCONNECT);
    client->is_asking = true;
    if (rc < 0)
        console_refuse(client, err.text);
    else
        client->c->opts.on_request(client->c->opts.arg, client, &r);
    client->is_asking = false;
}

/* Those that have arrived already; each is answered before the next is looked at. */
static void take_requests(struct console_client *client)
{
    const char *end;
    while (client->state == CLIENT_READS && (end = memchr(client->in, '\n', client->n_in)) != NULL)
        take_request(client, (size_t)(end - client->in));
    if (client->state == CLIENT_READS && client->n_in == sizeof client->in)
        client_close(client);
}

static void read_some(struct console_client *client)
{
    ssize_t n =
        recv(client->fd, client->in + client->n_in, sizeof client->in - client->n_in, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        client_close(client);
        return;
    }
    client->n_in += (size_t)n;
    take_requests(client);
}

static void on_client(uv_poll_t *poll, int status, int events)
{
    struct console_client *client = poll->data;
    if (status < 0 || ((events & UV_DISCONNECT) != 0 && client->state == CLIENT_WAITS))
        client_lose(client);
    else if (client->state == CLIENT_WRITES)
        write_on(client);
    else if (client->state == CLIENT_READS)
        read_some(client);
}

static void watch(struct console_client *client, int events)
{
    if (client->state != CLIENT_CLOSING)
        uv_poll_start(&client->poll, events, on_client);
}

/* --- Clients --- */

static struct console_client *find_place(struct console *c)
{
    for (int i = 0; i < CONSOLE_MAX_CLIENTS; i++)
        if (c->clients[i].state == CLIENT_FREE)
            return &c->clients[i];
    return NULL;
}

static void client_open(struct console *c, struct console_client *client, int fd)
{
    *client = (struct console_client){.c = c, .fd = fd, .state = CLIENT_READS};
    if (uv_poll_init(c->loop, &client->poll, fd) < 0) {
        client->state = CLIENT_FREE;
        close(fd);
        return;
    }
    uv_timer_init(c->loop, &client->deadline);
    client->poll.data = client->deadline.data = client;
    c->n_handles++;
    set_deadline(client);
    watch(client, UV_READABLE);
}

static void on_pause_over(uv_timer_t *timer)
{
    set_heard(timer->data, true);
}

/* One a turn: the listener stays readable. */
static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct console *c = poll->data;
    (void)status;
    (void)events;
    struct console_client *place = find_place(c);
    if (place == NULL) {
        set_heard(c, false); /* until a place is free */
        return;
    }
    int fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && co_is_shortage(errno)) {
        set_heard(c, false);
        uv_timer_start(&c->pause, on_pause_over, CO_LISTENER_REST_MS, 0);
    }
    if (fd >= 0 && job_directory_knows_peer(fd))
        client_open(c, place, fd);
    else if (fd >= 0)
        close(fd);
}

int console_open(uv_loop_t *loop, const char *dir, const struct console_opts *opts,
                 struct console **ret, struct co_error *err)
{
    struct console *c = calloc(1, sizeof *c);
    if (c == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    c->opts = *opts;
    if (c->opts.idle_ms == 0)
        c->opts.idle_ms = CONSOLE_IDLE_MS;
    c->loop = loop;
    c->fd = job_directory_listen(dir, err);
    int rc = c->fd < 0 ? c->fd : uv_poll_init(loop, &c->poll, c->fd);
    if (rc < 0) {
        if (c->fd >= 0)
            close(c->fd);
        free(c);
        return rc;
    }
    uv_timer_init(loop, &c->pause);
    c->poll.data = c->pause.data = c;
    c->n_handles = 2;
    uv_poll_start(&c->poll, UV_READABLE, on_connection);
    *ret = c;
    return 0;
}

static void on_own_handle_closed(uv_handle_t *handle)
{
    unref(handle->data);
}

void console_close(struct console *c)
{
    if (c == NULL)
        return;
    uv_close((uv_handle_t *)&c->poll, on_own_handle_closed);
    uv_close((uv_handle_t *)&c->pause, on_own_handle_closed);
    close(c->fd);
    c->fd = -1;
    for (int i = 0; i < CONSOLE_MAX_CLIENTS; i++)
        client_close(&c->clients[i]);
}
