/* check_nodes.c - starts an agent on each node and asks all of them at once.
 *
 * Read nodes_run() first. node_start() runs the remote shell of the next nodes that the bring-up
 * allows; await_some() polls all pipes; node_hear() takes an answer and node_ask() gets the next
 * request from the caller's function. A node that answers late or wrong is failed
 * (check_nodes_fail()) and not asked again. begin_end() and node_end() collect the last words of
 * one that has hung up. */
#include "check_nodes.h"

#include "check_run.h"
#include "ctl/check/check_report.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "launcher/hosts/bringup.h"
#include "launcher/hosts/host_list.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
    READ_BYTES = 16384,
    COMPLAINT_MAX_BYTES = 16384, /* of standard error: its end is kept */
    LAST_WORDS_MS = 1000,        /* the default of last_words_ms */
    END_MS = 2000,               /* then a remote shell that was asked to end is killed */
    N_POLLS = 3,                 /* for each node: its output, its errors, and its end */
};

struct node {
    pid_t pid; /* 0: it does not run */
    int in_fd, out_fd, err_fd;
    int end_fd; /* its end, once it has hung up; -1: not waited for, or seen */
    int status; /* once pid is 0 again: as waitpid() has it */
    struct check_wire wire;
    struct co_buf complaint;
    bool is_here, is_up;
    bool is_busy;   /* an answer is due, or its last words are */
    bool is_ending; /* it has hung up, and may still report why */
    uint64_t begun_ms, reach_ms, deadline_ms;
    char why[CHECK_WHY_BYTES];
};

struct check_nodes {
    struct check_nodes_opts opts;
    struct bringup *bringup;
    struct node *nodes;
    struct pollfd *polls; /* N_POLLS for each node */
    uint64_t answer_ms;
    check_next *next;
    void *arg;
};

/* --- the end of one --- */

static void hang_up(struct node *n)
{
    co_close_fd(&n->in_fd);
    co_close_fd(&n->out_fd);
    co_close_fd(&n->err_fd);
    co_close_fd(&n->end_fd);
    n->is_busy = n->is_ending = false;
}

void check_nodes_fail(struct check_nodes *c, size_t node, const char *why)
{
    struct node *n = &c->nodes[node];
    if (n->why[0] == '\0')
        snprintf(n->why, sizeof n->why, "%s", why);
    bringup_set(c->bringup, node, BRINGUP_FAILED, co_now_ms());
    if (n->pid > 0)
        kill(n->pid, SIGTERM);
    hang_up(n);
}

static void hear_complaint(struct node *n)
{
    size_t len = co_buf_len(&n->complaint);
    if (len > COMPLAINT_MAX_BYTES)
        co_buf_consume(&n->complaint, len - COMPLAINT_MAX_BYTES / 2);
    uint8_t *room = co_buf_room(&n->complaint, READ_BYTES);
    ssize_t got = room != NULL ? read(n->err_fd, room, READ_BYTES) : 0;
    if (got > 0)
        co_buf_added(&n->complaint, (size_t)got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        co_close_fd(&n->err_fd);
}

/* returns whether it has ended, and was reaped */
static bool await_end(struct node *n, uint64_t deadline_ms)
{
    if (n->pid == 0 || check_run_await(n->pid, deadline_ms, &n->status) < 0)
        return n->pid == 0;
    n->pid = 0;
    return true;
}

/* The node has hung up. The reason is in its last output, or in its status: both may arrive after
 * this, and are awaited together with the output of the other nodes. */
static void begin_end(struct check_nodes *c, size_t i)
{
    struct node *n = &c->nodes[i];
    co_close_fd(&n->in_fd);
    co_close_fd(&n->out_fd);
    n->end_fd = check_run_watch(n->pid);
    n->is_busy = n->is_ending = true;
    n->deadline_ms = co_deadline_ms(c->opts.last_words_ms);
    bringup_set(c->bringup, i, BRINGUP_FAILED, co_now_ms());
}

static void find_last_words(const struct node *n, char *to, size_t size)
{
    remote_shell_complaint((const char *)co_buf_bytes(&n->complaint), co_buf_len(&n->complaint),
                           "ddpctl: ", to, size);
}

static void node_end(struct check_nodes *c, size_t i)
{
    struct node *n = &c->nodes[i];
    char why[CHECK_WHY_BYTES] = "";
    find_last_words(n, why, sizeof why);
    bool has_ended = await_end(n, co_now_ms());
    if (why[0] == '\0' && has_ended && WIFEXITED(n->status))
        snprintf(why, sizeof why, "ssh exited with status %d", WEXITSTATUS(n->status));
    else if (why[0] == '\0')
        snprintf(why, sizeof why, "ssh exited");
    check_nodes_fail(c, i, why);
}

/* returns whether its output is complete and it has ended, as far as can be seen */
static bool is_at_its_end(const struct node *n)
{
    return n->is_ending && n->err_fd < 0 && n->end_fd < 0;
}

/* --- the beginning of one --- */

/* We ignore SIGPIPE, which is ours to do, not theirs. */
static int spawn(struct node *n, char *const *words, int theirs[3])
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigdefault(&attr, &set);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF);
    int rc = posix_spawn_file_actions_init(&actions);
    for (int fd = 0; rc == 0 && fd < 3; fd++)
        rc = posix_spawn_file_actions_adddup2(&actions, theirs[fd], fd);
    if (rc == 0)
        rc = posix_spawnp(&n->pid, words[0], &actions, &attr, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    if (rc != 0)
        n->pid = 0;
    return -rc;
}

/* Ours do not wait. returns 0, -errno; what is open is closed by hang_up() and the caller */
static int make_pipes(struct node *n, int theirs[3])
{
    int *ours[3] = {&n->in_fd, &n->out_fd, &n->err_fd};
    for (int i = 0; i < 3; i++) {
        int pair[2];
        if (pipe2(pair, O_CLOEXEC) < 0)
            return -errno;
        *ours[i] = pair[i == 0];
        theirs[i] = pair[i != 0];
        fcntl(*ours[i], F_SETFL, O_NONBLOCK);
    }
    return 0;
}

static void node_start(struct check_nodes *c, size_t i)
{
    static const char *const arguments[] = {"check", CHECK_WIRE_ARGUMENT, NULL};
    struct node *n = &c->nodes[i];
    int theirs[3] = {-1, -1, -1};
    struct co_error err = {0};
    co_autofree char **words = NULL;
    int rc = remote_shell_make(&c->opts.way, n->is_here ? NULL : &c->opts.hosts[i], c->opts.program,
                               arguments, &words, &err);
    if (rc == 0 && (rc = make_pipes(n, theirs)) == 0)
        rc = spawn(n, words, theirs);
    for (int k = 0; k < 3; k++)
        co_close_fd(&theirs[k]);
    n->begun_ms = co_now_ms();
    n->is_busy = rc == 0;
    n->deadline_ms = CO_NEVER_MS; /* the bring-up's */
    bringup_set(c->bringup, i, BRINGUP_REACHING, n->begun_ms);
    if (rc < 0 && words != NULL)
        co_fail(&err, rc, "%s: %s", words[0], strerror(-rc));
    if (rc < 0)
        check_nodes_fail(c, i, err.text);
}

/* --- asking --- */

/* A request fits into a pipe that is empty, and it is: the one before was answered. */
static void node_ask(struct check_nodes *c, size_t i, const json_t *answer)
{
    struct node *n = &c->nodes[i];
    json_t *request = c->next(c->arg, i, answer);
    n->is_busy = false;
    if (request == NULL)
        return;
    co_autofree char *line = check_wire_print(request);
    size_t len = line != NULL ? strlen(line) : 0;
    if (line == NULL || len > CHECK_REQUEST_MAX_BYTES) {
        check_nodes_fail(c, i, "the request is too long");
    } else if (write(n->in_fd, line, len) != (ssize_t)len) {
        begin_end(c, i);
    } else {
        n->is_busy = true;
        n->deadline_ms = co_deadline_ms(c->answer_ms);
    }
}

static void take_hello(struct check_nodes *c, size_t i, const json_t *hello)
{
    struct node *n = &c->nodes[i];
    if (json_integer_value(json_object_get(hello, "v")) != CHECK_PROTOCOL) {
        check_nodes_fail(c, i,
                         "ddpctl there has another version; install the same one on all nodes");
        return;
    }
    n->is_up = true;
    n->reach_ms = co_now_ms() - n->begun_ms;
    bringup_set(c->bringup, i, BRINGUP_UP, co_now_ms());
    node_ask(c, i, hello);
}

static void node_hear(struct check_nodes *c, size_t i)
{
    struct node *n = &c->nodes[i];
    struct co_error err = {0};
    json_t *answer;
    int rc = 0;
    uint8_t *room = co_buf_room(&n->wire.in, READ_BYTES);
    ssize_t got = room != NULL ? read(n->out_fd, room, READ_BYTES) : 0;
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        begin_end(c, i);
        return;
    }
    co_buf_added(&n->wire.in, (size_t)got);
    while (n->out_fd >= 0 && (rc = check_wire_take(&n->wire, &answer, &err)) > 0) {
        if (!n->is_busy)
            check_nodes_fail(c, i, "unexpected reply without a request");
        else if (!n->is_up)
            take_hello(c, i, answer);
        else
            node_ask(c, i, answer);
        json_decref(answer);
    }
    if (rc < 0)
        check_nodes_fail(c, i, err.text);
}

/* --- all of them --- */

static void give_up_late(struct check_nodes *c)
{
    ptrdiff_t late;
    char why[CHECK_WHY_BYTES], said[CHECK_WHY_BYTES - 64];
    while ((late = bringup_late(c->bringup, co_now_ms())) >= 0) {
        find_last_words(&c->nodes[late], said, sizeof said);
        snprintf(why, sizeof why, "timed out after %.1f s waiting for a reply%s%s",
                 (double)c->opts.way.reach_ms / 1e3, said[0] != '\0' ? "; last output: " : "",
                 said);
        check_nodes_fail(c, (size_t)late, why);
    }
    snprintf(why, sizeof why, "timed out after %.1f s waiting for the rest of the reply",
             (double)c->answer_ms / 1e3);
    for (size_t i = 0; i < c->opts.n; i++)
        if (c->nodes[i].is_ending && co_left_ms(c->nodes[i].deadline_ms) == 0)
            node_end(c, i);
        else if (c->nodes[i].is_busy && co_left_ms(c->nodes[i].deadline_ms) == 0)
            check_nodes_fail(c, i, why);
}

/* returns   whether a node is awaited; the earliest deadline */
static bool find_deadline(const struct check_nodes *c, uint64_t *ret_ms)
{
    bool is_busy = false;
    *ret_ms = bringup_deadline_ms(c->bringup);
    for (size_t i = 0; i < c->opts.n; i++) {
        const struct node *n = &c->nodes[i];
        is_busy |= n->is_busy;
        if (n->is_busy && n->deadline_ms < *ret_ms)
            *ret_ms = n->deadline_ms;
    }
    return is_busy;
}

static void look_at(struct check_nodes *c, size_t i, const struct pollfd polls[N_POLLS])
{
    struct node *n = &c->nodes[i];
    if (polls[1].revents != 0 && n->err_fd >= 0)
        hear_complaint(n);
    if (polls[0].revents != 0 && n->out_fd >= 0)
        node_hear(c, i);
    if (polls[2].revents != 0 && n->end_fd >= 0 && await_end(n, CO_NEVER_MS))
        co_close_fd(&n->end_fd);
    if (is_at_its_end(n))
        node_end(c, i);
}

static void await_some(struct check_nodes *c, uint64_t deadline_ms)
{
    for (size_t i = 0; i < c->opts.n; i++) {
        const struct node *n = &c->nodes[i];
        const int fds[N_POLLS] = {n->out_fd, n->err_fd, n->end_fd};
        for (size_t k = 0; k < N_POLLS; k++)
            c->polls[N_POLLS * i + k] = (struct pollfd){.fd = fds[k], .events = POLLIN};
    }
    if (poll(c->polls, N_POLLS * c->opts.n, co_left_ms(deadline_ms)) <= 0)
        return;
    for (size_t i = 0; i < c->opts.n; i++)
        look_at(c, i, c->polls + N_POLLS * i);
}

static void nodes_run(struct check_nodes *c, bool may_start)
{
    uint64_t deadline_ms;
    ptrdiff_t next;
    for (;;) {
        while (may_start && (next = bringup_next(c->bringup)) >= 0)
            node_start(c, (size_t)next);
        if (!find_deadline(c, &deadline_ms))
            return;
        await_some(c, deadline_ms);
        give_up_late(c);
    }
}

void check_nodes_reach(struct check_nodes *c, uint64_t answer_ms, check_next *next, void *arg)
{
    c->answer_ms = answer_ms;
    c->next = next;
    c->arg = arg;
    nodes_run(c, true);
}

void check_nodes_ask(struct check_nodes *c, uint64_t answer_ms, check_next *next, void *arg)
{
    c->answer_ms = answer_ms;
    c->next = next;
    c->arg = arg;
    for (size_t i = 0; i < c->opts.n; i++)
        if (check_nodes_is_there(c, i))
            node_ask(c, i, NULL);
    nodes_run(c, false);
}

int check_nodes_open(const struct check_nodes_opts *opts, struct check_nodes **ret,
                     struct co_error *err)
{
    /* One is enough, and the checks begin when all nodes are reached or have failed. */
    const struct bringup_limits limits = {.n_hosts = opts->n,
                                          .min_nodes = 1,
                                          .at_once = WAY_AT_ONCE,
                                          .reach_ms = opts->way.reach_ms,
                                          .window_ms = CO_NEVER_MS / 2};
    struct check_nodes *c = calloc(1, sizeof *c);
    if (c == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    c->opts = *opts;
    if (c->opts.last_words_ms == 0)
        c->opts.last_words_ms = LAST_WORDS_MS;
    c->bringup = bringup_create(&limits);
    c->nodes = calloc(opts->n, sizeof *c->nodes);
    c->polls = calloc(N_POLLS * opts->n, sizeof *c->polls);
    for (size_t i = 0; c->nodes != NULL && i < opts->n; i++) {
        struct node *n = &c->nodes[i];
        n->in_fd = n->out_fd = n->err_fd = n->end_fd = -1;
        n->is_here = opts->is_here_only || remote_shell_is_here(&opts->way, &opts->hosts[i]);
    }
    if (c->bringup == NULL || c->nodes == NULL || c->polls == NULL) {
        check_nodes_close(c);
        return co_fail(err, -ENOMEM, "out of memory");
    }
    *ret = c;
    return 0;
}

/* A node exits at the end of its input; a remote shell that does not is killed. */
static void end_all(struct check_nodes *c)
{
    uint64_t deadline_ms = co_deadline_ms(END_MS);
    for (size_t i = 0; i < c->opts.n; i++)
        hang_up(&c->nodes[i]);
    for (size_t i = 0; i < c->opts.n; i++) {
        struct node *n = &c->nodes[i];
        if (!await_end(n, deadline_ms)) {
            kill(n->pid, SIGKILL);
            waitpid(n->pid, &n->status, 0);
        }
        check_wire_fini(&n->wire);
        co_buf_fini(&n->complaint);
    }
}

void check_nodes_close(struct check_nodes *c)
{
    if (c == NULL)
        return;
    if (c->nodes != NULL)
        end_all(c);
    bringup_destroy(c->bringup);
    free(c->nodes);
    free(c->polls);
    free(c);
}

/* --- looking --- */

bool check_nodes_is_here(const struct check_nodes *c, size_t node)
{
    return c->nodes[node].is_here;
}

bool check_nodes_is_up(const struct check_nodes *c, size_t node)
{
    return c->nodes[node].is_up;
}

bool check_nodes_is_there(const struct check_nodes *c, size_t node)
{
    const struct node *n = &c->nodes[node];
    return n->is_up && !n->is_ending && n->why[0] == '\0';
}

uint64_t check_nodes_reach_ms(const struct check_nodes *c, size_t node)
{
    return c->nodes[node].reach_ms;
}

const char *check_nodes_why(const struct check_nodes *c, size_t node)
{
    return c->nodes[node].why;
}
