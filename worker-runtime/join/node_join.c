/* node_join.c - the ranks of a node join.
 *
 * node_join() reaches the broker, reach_broker(): ddprun, or local rank 0 by way of join_host.c.
 * The broker sends the control segment, on_control(), and the user segment of each peer,
 * on_segment(), which ask_next() requests one after the other. get_everything() repeats that until
 * all is mapped; meet_all() waits until all ranks have everything; check_terms() compares what the
 * ranks must have alike. Read get_everything() and meet_all() first.
 *
 * Every wait ends by its deadline or by the abort word of the control segment, which check_peers()
 * reads. */
#include "node_join.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/hash.h"
#include "common/scope.h"
#include "join_host.h"
#include "segments/control.h"
#include "worker-runtime/core/user_segment.h"
#include "worker-runtime/shm/transport_shm.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
    TURN_MS = 20,       /* between two looks at the clock, the abort word and the peers */
    FIRST_RETRY_MS = 1, /* until local rank 0 listens */
    LAST_RETRY_MS = 16,
    HERE = 1, /* control_line.arrived of a rank that has everything */
};
_Static_assert(TRANSPORT_SHM_MAILBOX_BYTES + sizeof(struct cpus_mask) <= CONTROL_MAILBOX_BYTES,
               "the mask lies after what the transport uses of a mailbox");

struct joiner {
    const struct node_join_opts *opts;
    struct user_segment *own;
    struct node *node;      /* being filled */
    struct join_host *host; /* of local rank 0, without ddprun; else NULL */
    int sock;               /* to the broker; -1: none open */
    bool owns_sock;
    bool joined;
    unsigned local_rank, n_local; /* in the generation, once it is known */
    uint32_t generation;          /* that it has joined, as the broker counts */
    unsigned next;                /* the peer whose segment is requested; n_local: all have
                                     joined */
    char socket_name[NODE_JOIN_NAME_BYTES];
    struct co_error trouble; /* the last thing that went wrong and was tried again */
};

/* --- reasons ---------------------------------------------------------------------------------- */

static bool has_come(const struct joiner *j, unsigned rank)
{
    const struct control *c = j->node->control;
    if (rank == j->local_rank)
        return true;
    if (j->host != NULL && join_host_has_come(j->host, rank))
        return true;
    return c != NULL && atomic_load(&c->line[rank].joined) != 0;
}

static const char *late_for(const struct joiner *j)
{
    if (!j->owns_sock)
        return "timed out waiting for ddprun's answer";
    return j->local_rank == 0 ? "timed out waiting to open the job's socket as rank 0"
                              : "timed out waiting for rank 0 to join";
}

static int fail_late(struct joiner *j, struct co_error *err)
{
    enum { NAMED = 8 };
    char names[NAMED * 8] = "";
    size_t length = 0;
    unsigned n_missing = 0;
    const char *trouble = j->trouble.text;
    char hint[160] = "";
    if (j->opts->hint[0] != '\0')
        snprintf(hint, sizeof hint, " (%s)", j->opts->hint);
    if (j->node->control == NULL && j->host == NULL) /* it is not known which ranks are missing */
        return co_fail(err, -ETIMEDOUT, "%s%s%s%s", late_for(j), trouble[0] != '\0' ? ": " : "",
                       trouble, hint);
    for (unsigned r = 0; r < j->n_local; r++) {
        if (has_come(j, r) || n_missing++ >= NAMED)
            continue;
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%u",
                                   length > 0 ? ", " : "", r);
    }
    char more[32] = "";
    if (n_missing > NAMED)
        snprintf(more, sizeof more, " and %u more", n_missing - NAMED);
    if (trouble[0] == '\0' && j->host != NULL)
        trouble = join_host_last_refusal(j->host);
    if (j->node->control != NULL)
        control_abort_set(
            j->node->control,
            (struct control_abort){.cause = CONTROL_TIMEOUT, .rank = (uint16_t)j->local_rank});
    if (n_missing == 0)
        return co_fail(err, -ETIMEDOUT,
                       "timed out waiting for all %u ranks to map each other's memory; check that "
                       "none is suspended",
                       j->n_local);
    return co_fail(err, -ETIMEDOUT, "timed out waiting for rank %s%s of %u to join%s%s%s", names,
                   more, j->n_local, trouble[0] != '\0' ? ": " : "", trouble, hint);
}

static int fail_aborted(struct control_abort why, struct co_error *err)
{
    switch (why.cause) {
    case CONTROL_RANK_DIED:
        return co_fail(err, -ECONNRESET,
                       "rank %u died before all ranks had joined; check its output", why.rank);
    case CONTROL_RANK_LEFT:
        return co_fail(err, -ECONNRESET,
                       "rank %u left before all ranks had joined; check its output", why.rank);
    case CONTROL_TIMEOUT:
        return co_fail(
            err, -ETIMEDOUT,
            "rank %u timed out waiting for its peers to join; check the output of the peers",
            why.rank);
    case CONTROL_JOB_STOPPING:
        return co_fail(err, -ECONNRESET, "ddprun is stopping the job");
    case CONTROL_RENEWED:
        return co_fail(err, -ECONNRESET, "another generation started before all ranks had joined");
    default:
        return co_fail(
            err, -ECONNRESET,
            "the job broke before all ranks had joined; check the output of the other ranks");
    }
}

/* Has the job come to an end while we wait? */
static int check_peers(struct joiner *j, struct co_error *err)
{
    struct control *c = j->node->control;
    if (c == NULL)
        return 0;
    for (unsigned r = 0; r < c->n_local; r++)
        if (control_look(c, r) == CONTROL_LEFT && atomic_load(&c->line[r].arrived) < HERE)
            control_abort_set(
                c, (struct control_abort){.cause = CONTROL_RANK_LEFT, .rank = (uint16_t)r});
    struct control_abort why = control_abort_get(c);
    return why.cause != CONTROL_OK ? fail_aborted(why, err) : 0;
}

/* --- reaching the broker ---------------------------------------------------------------------- */

void node_join_name(const char *job, unsigned uid, char name[NODE_JOIN_NAME_BYTES])
{
    /* what is cut off below also counts */
    const uint64_t hash = co_hash_bytes(CO_HASH_START, job, strlen(job));
    int n = snprintf(name, NODE_JOIN_NAME_BYTES, "ddp-%u-%016llx-%.60s", uid,
                     (unsigned long long)hash, job);
    for (int i = 0; i < n && name[i] != '\0'; i++)
        if (!isgraph((unsigned char)name[i]))
            name[i] = '_';
}

/* One try. returns 0; -EAGAIN with the reason in j->trouble, which may pass; -errno */
static int try_connect(struct joiner *j, struct co_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(j->socket_name);
    memcpy(address.sun_path + 1, j->socket_name, length);
    co_autoclose_fd int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0)
        return co_fail(err, -errno, "cannot create a socket: %s", strerror(errno));
    if (connect(sock, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) != 0) {
        if (errno != ECONNREFUSED && errno != EAGAIN)
            return co_fail(err, -errno, "cannot connect to the socket @%s: %s", j->socket_name,
                           strerror(errno));
        return co_fail(&j->trouble, -EAGAIN, "nothing is listening on the socket @%s",
                       j->socket_name);
    }
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return co_fail(err, -errno, "cannot determine which process listens: %s", strerror(errno));
    if (peer.uid != geteuid())
        return co_fail(&j->trouble, -EAGAIN, "the socket @%s is in use by user %u, PID %d",
                       j->socket_name, peer.uid, peer.pid);
    co_fail(&j->trouble, -EAGAIN, "PID %d has the socket @%s open and does not answer", peer.pid,
            j->socket_name);
    j->sock = co_take_fd(&sock);
    return 0;
}

static int try_host(struct joiner *j, struct co_error *err)
{
    int code =
        join_host_create(j->socket_name, j->n_local, j->opts->generation, &j->host, &j->sock, err);
    if (code == -EADDRINUSE)
        return co_fail(&j->trouble, -EAGAIN,
                       "the socket @%s is in use: is a job with the same ID still running? Set "
                       "another DDP_JOB_ID",
                       j->socket_name);
    return code;
}

static int say_hello(struct joiner *j, struct co_error *err)
{
    struct node_message m = {.magic = NODE_SOCKET_MAGIC,
                             .version = NODE_SOCKET_VERSION,
                             .type = NODE_HELLO,
                             .local_rank = j->opts->local_rank,
                             .n_local = j->opts->n_local,
                             .bytes = user_segment_bytes(j->own)};
    if (j->opts->again != NULL) {
        m.generation = j->opts->again->wanted;
        m.flags = NODE_RECOVERS;
    }
    int code = node_message_send(j->sock, &m, user_segment_fd(j->own));
    if (code != 0)
        return co_fail(err, code, "cannot send to the node socket: %s", strerror(-code));
    return 0;
}

static void close_sock(struct joiner *j)
{
    if (j->owns_sock && j->sock >= 0)
        close(j->sock);
    j->sock = -1;
}

/* Open the connection to the broker and send the hello. Without ddprun that takes until local rank
 * 0 is there, and until a job of the same name has gone. */
static int reach_broker(struct joiner *j, struct co_error *err)
{
    if (!j->owns_sock) {
        j->sock = j->opts->node_fd;
        return say_hello(j, err);
    }
    for (int retry_ms = FIRST_RETRY_MS;;) {
        int code = j->local_rank == 0 ? try_host(j, err) : try_connect(j, err);
        if (code == 0) {
            code = say_hello(j, &j->trouble);
            if (code == 0 || j->host != NULL)
                return code;
            close_sock(j); /* it stopped listening meanwhile */
            code = -EAGAIN;
        }
        if (code != -EAGAIN)
            return code;
        if (co_left_ms(j->opts->deadline_ms) == 0)
            return fail_late(j, err);
        poll(NULL, 0, retry_ms);
        retry_ms = retry_ms * 2 < LAST_RETRY_MS ? retry_ms * 2 : LAST_RETRY_MS;
    }
}

/* --- the conversation ------------------------------------------------------------------------- */

static int ask_next(struct joiner *j, struct co_error *err)
{
    if (j->next == j->local_rank)
        j->next++;
    if (j->next == j->n_local)
        return 0;
    int code = node_message_notify(j->sock, NODE_FETCH, j->next, j->generation);
    if (code != 0)
        return co_fail(err, code, "cannot send to the node socket: %s", strerror(-code));
    return 0;
}

/* Ranks of lower numbers may be gone for good. What is in other places than the own one is a
 * peer's, and unmapped with the node: the old place, which may be the same, is empty first. */
static void take_local_place(struct joiner *j, const struct node_message *m)
{
    struct node *n = j->node;
    struct node_again *again = j->opts->again;
    uint8_t *own = n->user[n->local_rank];
    const uint64_t own_bytes = n->user_bytes[n->local_rank];
    j->local_rank = m->local_rank;
    j->n_local = m->n_local;
    n->user[n->local_rank] = NULL;
    n->user_bytes[n->local_rank] = 0;
    n->user[j->local_rank] = own;
    n->user_bytes[j->local_rank] = own_bytes;
    n->local_rank = j->local_rank;
    n->n_local = j->n_local;
    again->local_rank = j->local_rank;
    again->n_local = j->n_local;
    again->place = m->place;
    memcpy(again->store_host, m->text, sizeof again->store_host);
}

static int note_generation(struct joiner *j, const struct node_message *m, struct co_error *err)
{
    struct node_again *again = j->opts->again;
    j->generation = m->generation;
    if (again == NULL)
        return 0;
    again->joined = m->generation;
    again->may_follow = (m->flags & NODE_RECOVERS) != 0;
    if ((m->flags & NODE_PLACED) == 0)
        return 0;
    if (m->n_local > j->opts->n_local)
        return co_fail(err, -EPROTO, "this node has more ranks now than at the start of the job");
    take_local_place(j, m);
    return 0;
}

static int on_control(struct joiner *j, const struct node_message *m, int fd, struct co_error *err)
{
    struct control *c;
    if (fd < 0 || j->joined)
        return co_fail(err, -EPROTO, "an unexpected answer on the node socket");
    int code = control_map(fd, &c, err);
    if (code != 0)
        return code;
    j->node->control = c;
    j->node->generation = c->generation;
    madvise(c->shared, c->bytes, MADV_DONTFORK); /* a child is not a rank */
    madvise(c->shared, c->bytes, MADV_DONTDUMP);
    code = note_generation(j, m, err);
    if (code != 0)
        return code;
    if (c->n_local != j->n_local)
        return co_fail(err, -ENOEXEC,
                       "the environment gives %u ranks on this node, but there are %u: set "
                       "LOCAL_WORLD_SIZE to that",
                       j->n_local, c->n_local);
    if (control_join(c, j->local_rank, (uint32_t)getpid()) != 0)
        return co_fail(err, -EEXIST, "local rank %u has already joined", j->local_rank);
    j->joined = true;
    j->trouble.text[0] = '\0';
    return ask_next(j, err);
}

static int on_segment(struct joiner *j, const struct node_message *m, int fd, struct co_error *err)
{
    if (fd < 0 || !j->joined || j->next >= j->n_local || m->local_rank != j->next)
        return co_fail(err, -EPROTO, "an unexpected answer on the node socket");
    uint8_t **user = &j->node->user[j->next];
    int code = j->node->peers != NULL ? peer_maps_take(j->node->peers, fd, m->bytes, user, err)
                                      : user_segment_map_peer(fd, m->bytes, user, err);
    if (code != 0)
        return code;
    j->node->user_bytes[j->next] = m->bytes;
    j->next++;
    return ask_next(j, err);
}

/* The other end is gone. Before it answered that may be the end of an older job of the same
 * name. */
static int on_closed(struct joiner *j, struct co_error *err)
{
    if (j->owns_sock && j->host == NULL && !j->joined) {
        close_sock(j);
        return reach_broker(j, err);
    }
    return co_fail(err, -ECONNRESET, "lost the connection to %s while the ranks joined",
                   j->owns_sock ? "rank 0" : "ddprun");
}

static int on_refused(const struct joiner *j, const struct node_message *m, struct co_error *err)
{
    int code = m->code != -ECONNRESET ? -EIO : j->joined ? -ECONNRESET : -ECANCELED;
    return co_fail(err, code, "refused: %s", m->text);
}

/* Read and answer all that is there. */
static int read_answers(struct joiner *j, struct co_error *err)
{
    const struct node_again *again = j->opts->again;
    while (j->next < j->n_local) {
        struct node_message m;
        co_autoclose_fd int fd = -1;
        int rc = node_message_receive(j->sock, &m, &fd, err);
        if (rc == -EAGAIN)
            return 0;
        if (rc == 0)
            rc = on_closed(j, err);
        else if (rc == 1 && again != NULL && m.generation < again->wanted)
            continue; /* an answer to what was asked in a generation that is over */
        else if (rc == 1 && m.type == NODE_CONTROL)
            rc = on_control(j, &m, fd, err);
        else if (rc == 1 && m.type == NODE_SEGMENT)
            rc = on_segment(j, &m, fd, err);
        else if (rc == 1 && m.type == NODE_REFUSED)
            rc = on_refused(j, &m, err);
        else if (rc == 1)
            rc = co_fail(err, -EPROTO, "an unexpected message on the node socket");
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int wait_turn(struct joiner *j, struct co_error *err)
{
    int left_ms = co_left_ms(j->opts->deadline_ms);
    int ms = left_ms >= 0 && left_ms < TURN_MS ? left_ms : TURN_MS;
    if (j->host != NULL)
        return join_host_turn(j->host, j->sock, ms, err);
    struct pollfd watch = {.fd = j->sock, .events = POLLIN};
    if (poll(&watch, 1, ms) < 0 && errno != EINTR)
        return co_fail(err, -errno, "poll: %s", strerror(errno));
    return 0;
}

/* Until each peer's segment is mapped. Where the broker goes away, the reason in the abort word, if
 * there is one, comes before that of the socket. */
static int get_everything(struct joiner *j, struct co_error *err)
{
    int code = reach_broker(j, err);
    while (code == 0) {
        code = read_answers(j, err);
        if (code == 0 && j->next == j->n_local)
            break;
        struct co_error reason;
        int broken = check_peers(j, &reason);
        if (broken != 0)
            return co_fail(err, broken, "%s", reason.text);
        if (code == 0 && co_left_ms(j->opts->deadline_ms) == 0)
            code = fail_late(j, err);
        if (code == 0)
            code = wait_turn(j, err);
    }
    return code;
}

/* --- all together ----------------------------------------------------------------------------- */

struct introduction { /* what ranks exchange when they join, after their mailboxes */
    struct cpus_mask cpus;
    uint64_t terms;
};
_Static_assert(TRANSPORT_SHM_MAILBOX_BYTES + sizeof(struct introduction) <= CONTROL_MAILBOX_BYTES,
               "there is space for it");

static struct introduction *introduction_of(struct control *c, unsigned rank)
{
    return (struct introduction *)(control_mailbox(c, rank) + TRANSPORT_SHM_MAILBOX_BYTES);
}

/* All have come. If terms differ all of them notice, and none continues. */
static int check_terms(const struct joiner *j, struct co_error *err)
{
    struct control *c = j->node->control;
    for (unsigned r = 1; r < c->n_local; r++)
        if (introduction_of(c, r)->terms != introduction_of(c, 0)->terms)
            return co_fail(
                err, -ENOEXEC,
                "rank %u and rank 0 have different values of %s: set the same on all ranks", r,
                j->opts->terms_name);
    return 0;
}

/* Report that this rank has everything, and wait until its peers have. */
static int meet_all(struct joiner *j, struct co_error *err)
{
    struct control *c = j->node->control;
    struct introduction *own = introduction_of(c, j->local_rank);
    cpus_get_mask(&own->cpus);
    own->terms = j->opts->terms;
    control_arrive(&c->line[j->local_rank], HERE);
    if (j->host == NULL)
        close_sock(j); /* notifies the host */
    for (unsigned r = 0; r < c->n_local;) {
        uint32_t arrived = atomic_load(&c->line[r].arrived);
        if (arrived >= HERE) {
            r++;
            continue;
        }
        int code = check_peers(j, err);
        if (code == 0 && co_left_ms(j->opts->deadline_ms) == 0)
            code = fail_late(j, err);
        if (code == 0 && j->host != NULL)
            code = join_host_turn(j->host, -1, TURN_MS, err);
        else if (code == 0)
            control_sleep(&c->line[r], arrived, TURN_MS * 1000);
        if (code != 0)
            return code;
    }
    return 0;
}

static unsigned count_cpus(struct control *c)
{
    struct cpus_mask all = {0};
    for (unsigned r = 0; r < c->n_local; r++)
        for (size_t i = 0; i < sizeof all.word / sizeof *all.word; i++)
            all.word[i] |= introduction_of(c, r)->cpus.word[i];
    unsigned n = cpus_count(&all), quota = cpus_quota();
    return n < quota ? n : quota;
}

static void free_node(struct node *n)
{
    if (n == NULL)
        return;
    for (unsigned r = 0; n->user != NULL && n->user_bytes != NULL && r < n->n_local; r++)
        if (r != n->local_rank && n->peers != NULL)
            peer_maps_give_back(n->peers, n->user[r]);
        else if (r != n->local_rank)
            user_segment_unmap_peer(n->user[r], n->user_bytes[r]);
    control_unmap(n->control);
    free(n->user);
    free(n->user_bytes);
    free(n);
}

static struct node *new_node(const struct node_join_opts *opts, struct user_segment *own)
{
    struct node *n = calloc(1, sizeof *n);
    if (n == NULL)
        return NULL;
    n->local_rank = opts->local_rank;
    n->n_local = opts->n_local;
    n->peers = opts->again != NULL ? &opts->again->peers : NULL;
    n->user = calloc(opts->n_local, sizeof *n->user);
    n->user_bytes = calloc(opts->n_local, sizeof *n->user_bytes);
    if (n->user == NULL || n->user_bytes == NULL) {
        free_node(n);
        return NULL;
    }
    n->user[n->local_rank] = user_segment_base(own);
    n->user_bytes[n->local_rank] = user_segment_bytes(own);
    return n;
}

bool node_join_is_socket(int fd)
{
    int type = 0, domain = 0;
    socklen_t size = sizeof type;
    return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
           type == SOCK_SEQPACKET;
}

int node_join(const struct node_join_opts *opts, struct user_segment *own, struct node **ret,
              struct co_error *err)
{
    struct co_error local_err = {0};
    err = err != NULL ? err : &local_err;
    struct joiner j = {.opts = opts,
                       .own = own,
                       .sock = -1,
                       .local_rank = opts->local_rank,
                       .n_local = opts->n_local};
    j.owns_sock = !node_join_is_socket(opts->node_fd);
    if (!j.owns_sock)
        fcntl(opts->node_fd, F_SETFL, fcntl(opts->node_fd, F_GETFL) | O_NONBLOCK);
    node_join_name(opts->job, (unsigned)geteuid(), j.socket_name);
    j.node = new_node(opts, own);
    if (j.node == NULL)
        return co_fail(err, -ENOMEM, "out of memory");

    int code = get_everything(&j, err);
    if (code == 0)
        code = meet_all(&j, err);
    if (code == 0)
        code = check_terms(&j, err);
    if (code == 0)
        j.node->n_cpus = count_cpus(j.node->control);
    else if (j.joined)
        control_leave(j.node->control, j.local_rank);
    close_sock(&j);
    join_host_destroy(j.host);
    if (code != 0) {
        free_node(j.node);
        return code;
    }
    if (j.node->peers != NULL)
        peer_maps_sweep(j.node->peers);
    *ret = j.node;
    return 0;
}

void node_leave(struct node *n)
{
    if (n == NULL)
        return;
    control_leave(n->control, n->local_rank);
    free_node(n);
}
