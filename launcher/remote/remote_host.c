/* One host: remote_host_start() starts the way there with a pipe for each standard stream.
 * on_heard() looks for our lines in its output: it may want the payload (send_payload()), it is up,
 * and after remote_host_tell() it is ready; from then on its output is that of the ranks
 * (pass_output_on()). write_some() sends the payload first and then the orders. on_host passes each
 * step to remote.c. Read look_at_line() first, then write_some().
 *
 * Invariant: from the order until the host is ready, its output is read byte by byte, so that
 * what the ranks write is still in the pipe when output.c takes the pipe over. */
#include "remote_priv.h"

#include "launch_channel.h"
#include "launcher/hosts/host_list.h"
#include "launcher/hosts/remote_shell.h"
#include "launcher/job/job_spec.h"
#include "launcher/platform/own_addresses.h"
#include "launcher/spawner/image.h"
#include "launcher/stdio/output.h"
#include "remote_roster.h"

#include "common/error.h"
#include "common/scope.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { READ_BYTES = 4096, PIPE_BYTES = 65536 };

static void close_fd(uv_poll_t *poll, int *fd)
{
    remote_close_handle(poll);
    co_close_fd(fd);
}

static void give_up(struct remote_host *h, const char *why)
{
    snprintf(h->why, sizeof h->why, "%s", why);
    remote_host_kill(h);
    h->remote->on_host(h, BRINGUP_FAILED, h->why);
}

/* --- standard error, until it is a node --- */

static void on_complaint(uv_poll_t *poll, int status, int events)
{
    struct remote_host *h = poll->data;
    (void)status, (void)events;
    size_t len = co_buf_len(&h->complaint);
    if (len > REMOTE_HEARD_MAX_BYTES)
        co_buf_consume(&h->complaint, len - REMOTE_HEARD_MAX_BYTES / 2);
    uint8_t *room = co_buf_room(&h->complaint, READ_BYTES);
    ssize_t n = room != NULL ? read(h->err_fd, room, READ_BYTES) : 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    co_buf_added(&h->complaint, n > 0 ? (size_t)n : 0);
    if (n <= 0)
        close_fd(&h->err_poll, &h->err_fd);
}

void remote_host_said(struct remote_host *h, char *to, size_t n)
{
    for (int i = 0; i < PIPE_BYTES / READ_BYTES && h->err_fd >= 0; i++) {
        size_t before = co_buf_len(&h->complaint);
        on_complaint(&h->err_poll, 0, 0);
        if (h->err_fd >= 0 && co_buf_len(&h->complaint) == before)
            break;
    }
    remote_shell_complaint((const char *)co_buf_bytes(&h->complaint), co_buf_len(&h->complaint),
                           "ddprun: ", to, n);
}

/* The script there has passed over an installed ddprun. Once for all hosts: they share its path. */
static void pass_warning_on(struct remote_host *h)
{
    static const char label[] = "ddprun: warning: ";
    struct remote *r = h->remote;
    char why[REMOTE_WHY_BYTES], line[sizeof label + HOST_NAME_BYTES + sizeof why];
    remote_host_said(h, why, sizeof why);
    if (r->has_warned || co_buf_len(&h->complaint) == 0 ||
        memmem(co_buf_bytes(&h->complaint), co_buf_len(&h->complaint), label, strlen(label)) ==
            NULL)
        return;
    r->has_warned = true;
    snprintf(line, sizeof line, "%s%s: %s\n", label, h->host->name, why);
    output_report(r->output, line);
}

/* --- standard output, until it is a node --- */

/* returns   0, -ENOMEM */
static int pass_output_on(struct remote_host *h)
{
    struct remote *r = h->remote;
    int rc = 0, rank = (int)(h - r->hosts);
    int fds[2] = {h->out_fd, h->err_fd};
    remote_close_handle(&h->out_poll);
    remote_close_handle(&h->err_poll);
    if (co_buf_len(&h->complaint) > 0 && co_buf_append(&h->complaint, "", 1) == 0)
        output_report(r->output,
                      (const char *)co_buf_bytes(&h->complaint)); /* its ranks' already */
    co_buf_fini(&h->complaint);
    h->out_fd = h->err_fd = -1;
    for (int which = 0; which < 2; which++) {
        const struct output_way way = {
            .to = (enum output_sink)which, .prefix = "", .log_fd = -1, .filter_fd = -1};
        if (fds[which] >= 0 &&
            output_add(r->output, rank, (enum output_sink)which, fds[which], false, &way) < 0)
            rc = -ENOMEM;
    }
    return rc;
}

static void write_some(struct remote_host *h);

static void send_payload(struct remote_host *h, const char *machine)
{
    const struct payload *p = &h->remote->payload;
    char why[REMOTE_WHY_BYTES];
    if (strcmp(machine, p->machine) != 0) {
        snprintf(why, sizeof why,
                 "no ddprun of this version is installed there, and ddprun-static here is for %s, "
                 "not %s; install ddprun there",
                 p->machine, machine);
        give_up(h, why);
        return;
    }
    h->was_sent = true;
    h->n_to_send = p->n_bytes;
    h->remote->on_host(h, BRINGUP_REACHING, "");
    write_some(h);
}

/* Once at most.
 *
 * returns   whether it asked for a ddprun, or broke the protocol */
static bool look_for_wish(struct remote_host *h)
{
    char machine[LAUNCH_FROM_BYTES];
    struct co_error err = {0};
    size_t used;
    if (h->remote->payload.bytes == NULL || h->was_sent)
        return false;
    int rc = launch_find_line(LAUNCH_WANTS, co_buf_bytes(&h->heard), co_buf_len(&h->heard), &used,
                              machine, &err);
    if (rc > 0) {
        co_buf_consume(&h->heard, used);
        send_payload(h, machine);
    } else if (rc < 0) {
        give_up(h, err.text);
    }
    return rc != 0;
}

static void look_at_line(struct remote_host *h, enum launch_line which)
{
    struct co_error err = {0};
    size_t used;
    if (which == LAUNCH_UP && look_for_wish(h))
        return;
    int rc = launch_find_line(which, co_buf_bytes(&h->heard), co_buf_len(&h->heard), &used, h->from,
                              &err);
    if (rc < 0) {
        give_up(h, err.text);
    } else if (rc > 0 && which == LAUNCH_UP) {
        co_buf_consume(&h->heard, co_buf_len(&h->heard)); /* it sends nothing more until it has its
                                                           * order */
        pass_warning_on(h);
        co_buf_fini(&h->complaint); /* greetings, warnings of ssh */
        h->remote->on_host(h, BRINGUP_UP, "");
    } else if (rc > 0 && pass_output_on(h) < 0) {
        give_up(h, "out of memory");
    } else if (rc > 0) {
        h->remote->on_host(h, BRINGUP_READY, "");
    }
}

/* Once it has its order, what follows our line is the ranks': it is read byte by byte. Not all at
 * once: a host that never stops writing would hold up the others.
 *
 * returns   whether there may be more */
static bool hear_some(struct remote_host *h)
{
    for (int i = 0; i < READ_BYTES && h->out_fd >= 0; i++) {
        uint8_t *room = co_buf_room(&h->heard, READ_BYTES);
        ssize_t n = room != NULL ? read(h->out_fd, room, h->is_ordered ? 1 : READ_BYTES) : 0;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return false;
        if (n <= 0) {
            close_fd(&h->out_poll, &h->out_fd);
            return false;
        }
        co_buf_added(&h->heard, (size_t)n);
        if (!h->is_ordered)
            look_at_line(h, LAUNCH_UP);
        else if (*room == '\n' || co_buf_len(&h->heard) > LAUNCH_CHATTER_MAX_BYTES)
            look_at_line(h, LAUNCH_READY);
    }
    return h->out_fd >= 0;
}

static void on_heard(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    hear_some(poll->data);
}

/* --- its launch channel --- */

static void on_room(uv_poll_t *poll, int status, int events);

/* What is to be written now: part of the payload, which no order overtakes, or of the rest.
 *
 * returns   bytes; 0: nothing */
static size_t next_bytes(const struct remote_host *h, const uint8_t **ret)
{
    const struct payload *p = &h->remote->payload;
    *ret = h->n_to_send > 0 ? p->bytes + (p->n_bytes - h->n_to_send) : co_buf_bytes(&h->to_write);
    return h->n_to_send > 0 ? h->n_to_send : co_buf_len(&h->to_write);
}

/* A host that no longer reads is about to end. */
static void write_some(struct remote_host *h)
{
    const uint8_t *bytes;
    size_t len;
    while (h->in_fd >= 0 && (len = next_bytes(h, &bytes)) > 0) {
        ssize_t n = write(h->in_fd, bytes, len);
        if (n < 0 && errno == EAGAIN) {
            if (!h->is_writing)
                uv_poll_start(&h->in_poll, UV_WRITABLE, on_room);
            h->is_writing = true;
            return;
        }
        if (n < 0 && errno != EINTR) {
            close_fd(&h->in_poll, &h->in_fd);
            return;
        }
        if (n > 0 && h->n_to_send > 0)
            h->n_to_send -= (size_t)n;
        else if (n > 0)
            co_buf_consume(&h->to_write, (size_t)n);
    }
    if (h->is_writing && h->in_fd >= 0)
        uv_poll_stop(&h->in_poll);
    h->is_writing = false;
}

static void on_room(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    write_some(poll->data);
}

/* An address of this machine, where no host knows by which one it was started. */
static const char *guess_address(struct remote *r)
{
    struct message_address own[MESSAGE_MAX_ADDRESSES];
    if (r->guessed[0] == '\0' && own_addresses_find(own) > 0)
        inet_ntop(own[0].family == 4 ? AF_INET : AF_INET6, own[0].bytes, r->guessed,
                  sizeof r->guessed);
    return r->guessed;
}

/* Where this host finds us: as configured, or by the address from which it, or another one, was
 * reached. */
static const char *find_meeting(struct remote_host *h, char name[HOST_NAME_BYTES])
{
    struct remote *r = h->remote;
    if (r->spec->world.local_addr != NULL)
        return r->spec->world.local_addr;
    if (h->from[0] != '\0')
        return ""; /* it knows best */
    for (size_t i = 0; i < r->n_hosts; i++)
        if (r->hosts[i].from[0] != '\0')
            return r->hosts[i].from;
    if (h->is_here && r->n_hosts == 1)
        return "127.0.0.1";
    const char *guessed = guess_address(r);
    if (guessed[0] != '\0' || !h->is_here)
        return guessed; /* "": the host reports that this is not known */
    if (gethostname(name, HOST_NAME_BYTES) < 0)
        return "127.0.0.1";
    name[HOST_NAME_BYTES - 1] = '\0';
    return name;
}

int remote_host_tell(struct remote_host *h)
{
    const struct remote *r = h->remote;
    char name[HOST_NAME_BYTES];
    const struct launch_order order = {.dir = r->dir,
                                       .token = r->token,
                                       .name = h->host->name,
                                       .run_id = r->spec->run_id,
                                       .nodes = r->nodes,
                                       .host = find_meeting(h, name),
                                       .port = remote_roster_port(r->roster),
                                       .n_ranks = h->n_ranks != UINT32_MAX ? h->n_ranks : 0,
                                       .argv = r->argv,
                                       .env = r->env};
    h->to_write.has_secrets = true;
    int rc = launch_put_order(&order, &h->to_write);
    h->is_ordered = true;
    if (rc == 0)
        write_some(h);
    return rc;
}

void remote_host_signal(struct remote_host *h, int sig)
{
    if (h->in_fd >= 0 && launch_put_signal(sig, &h->to_write) == 0)
        write_some(h);
}

/* --- its process --- */

/* The child's ends are closed by scope; ours do not wait. */
static int make_pipes(struct remote_host *h, int theirs[3])
{
    int pair[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    int rc = 0;
    for (int i = 0; i < 3 && rc == 0; i++)
        rc = pipe2(pair[i], O_CLOEXEC) < 0 ? -errno : 0;
    for (int i = 0; i < 3; i++) {
        int ours = pair[i][i == 0];
        theirs[i] = pair[i][i != 0];
        if (rc == 0)
            fcntl(ours, F_SETFL, O_NONBLOCK);
        *(i == 0 ? &h->in_fd : i == 1 ? &h->out_fd : &h->err_fd) = ours;
    }
    return rc;
}

static int watch_pipes(struct remote_host *h)
{
    uv_loop_t *loop = &h->remote->loop;
    h->in_poll.data = h->out_poll.data = h->err_poll.data = h;
    return uv_poll_init(loop, &h->in_poll, h->in_fd)
        ?: uv_poll_init(loop, &h->out_poll, h->out_fd)
        ?: uv_poll_init(loop, &h->err_poll, h->err_fd)
        ?: uv_poll_start(&h->out_poll, UV_READABLE | UV_DISCONNECT, on_heard)
        ?: uv_poll_start(&h->err_poll, UV_READABLE | UV_DISCONNECT, on_complaint);
}

static int spawn(struct remote_host *h, const int theirs[3])
{
    struct remote *r = h->remote;
    co_autofree char **words = NULL;
    co_autofree char *path = NULL;
    co_autoclose_fd int image_fd = -1;
    struct co_error err = {0};
    int rc = remote_command_make(r, h->is_here ? NULL : h->host, false, &path, &words, &err);
    if (rc < 0) {
        snprintf(h->why, sizeof h->why, "%s", err.text);
        return rc;
    }
    const struct image_words image = {.path = path, .argv = words, .env = r->shell_env};
    const int fds[1][SPAWN_N_FDS] = {{theirs[0], theirs[1], theirs[2], -1, -1, -1, -1, -1, -1}};
    rc = image_make(&image, 1, &image_fd, &err);
    return rc < 0 ? rc : spawner_spawn(&r->spawner, (int)(h - r->hosts), 1, image_fd, fds);
}

int remote_host_start(struct remote_host *h)
{
    int theirs[3];
    int rc = make_pipes(h, theirs) ?: watch_pipes(h) ?: spawn(h, theirs);
    for (int i = 0; i < 3; i++)
        if (theirs[i] >= 0)
            close(theirs[i]);
    if (rc < 0 && h->why[0] == '\0')
        snprintf(h->why, sizeof h->why, "cannot start ssh: %s", strerror(-rc));
    h->runs = rc == 0;
    return rc;
}

void remote_host_started(struct remote_host *h, pid_t pid)
{
    h->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (h->pidfd >= 0)
        fcntl(h->pidfd, F_SETFD, FD_CLOEXEC);
    if (h->is_killed)
        remote_host_kill(h);
}

void remote_host_kill(struct remote_host *h)
{
    h->is_killed = true;
    close_fd(&h->in_poll, &h->in_fd);
    close_fd(&h->out_poll, &h->out_fd);
    if (h->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, h->pidfd, SIGTERM, NULL, 0);
}

const char *remote_host_ended(struct remote_host *h)
{
    h->runs = false;
    /* What it wrote before it ended is there: it may have become a node, if it had its order. That
     * it is up is no longer true. */
    while (h->is_ordered && hear_some(h)) {
    }
    if (h->why[0] == '\0')
        remote_host_said(h, h->why, sizeof h->why);
    remote_host_close(h);
    return h->why;
}

void remote_host_close(struct remote_host *h)
{
    close_fd(&h->in_poll, &h->in_fd);
    close_fd(&h->out_poll, &h->out_fd);
    close_fd(&h->err_poll, &h->err_fd);
    co_close_fd(&h->pidfd);
    co_buf_fini(&h->to_write);
    co_buf_fini(&h->heard);
    co_buf_fini(&h->complaint);
}

void remote_host_reset(struct remote_host *h)
{
    h->why[0] = h->from[0] = '\0';
    h->is_ordered = h->was_sent = h->is_writing = h->is_killed = false;
    h->n_to_send = 0;
}
