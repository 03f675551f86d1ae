/* join_load - many supervisors that join one job as ddprun does, in one process with one thread.
 *
 *     join_load PORT RUN-ID NODES
 *
 * Each has a member (member.h) and a control connection of its own to 127.0.0.1:PORT, sealed with
 * DDP_TOKEN if that is set. It has no ranks and no store: rank 0's node reports at once that the
 * store is open. Prints one line, in milliseconds from the first connect: until the roster knew all
 * nodes, and until all had their places in generation 0. Then waits for the end of stdin. */
#include "common/clock.h"
#include "common/error.h"
#include "common/listener.h"
#include "rendezvous/channel/channel_conn.h"
#include "rendezvous/channel/channel_wire.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/membership/member.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <uv.h>

enum {
    RANKS_PER_NODE = 8,
    CONNECT_MS = 10000,
    LIMIT_MS = 60000,
    MAX_NODES = 20000,
};

struct load;

struct node {
    struct load *load;
    struct member *member;
    struct channel_conn *conn; /* or NULL */
    uv_timer_t timer;
    bool is_welcome, is_placed;
};

struct load {
    uv_loop_t loop;
    struct channel_conn_host conns;
    struct sockaddr_in to;
    struct seal_key key;
    bool has_key;
    struct node *nodes;
    unsigned n, n_welcome, n_placed, n_broken;
    uint64_t begun_ns, welcome_ns, placed_ns;
    uv_timer_t limit;
    uv_pipe_t input; /* the program ends with it */
};

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("join_load: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* --- a member's orders --- */

static void step(struct node *node, struct member_input *in);
static void connect_to_roster(struct node *node);

static void on_timer(uv_timer_t *timer)
{
    step(timer->data, &(struct member_input){.type = MEMBER_TIME});
}

static void set_timer(struct node *node)
{
    uint64_t deadline_ms = member_deadline_ms(node->member), now_ms = co_now_ms();
    if (deadline_ms == CO_NEVER_MS)
        uv_timer_stop(&node->timer);
    else
        uv_timer_start(&node->timer, on_timer, deadline_ms > now_ms ? deadline_ms - now_ms : 0, 0);
}

static void note_state(struct node *node)
{
    struct load *l = node->load;
    enum member_state state = member_get_state(node->member);
    if (state == MEMBER_ENDED)
        die("a node ended: %s", member_get_end(node->member)->text);
    if (state != MEMBER_JOINING && !node->is_welcome) {
        node->is_welcome = true;
        if (++l->n_welcome == l->n)
            l->welcome_ns = co_now_ns();
    }
    if (state == MEMBER_RUNNING && !node->is_placed) {
        node->is_placed = true;
        if (++l->n_placed == l->n)
            l->placed_ns = co_now_ns();
    }
}

static void tell(const struct load *l)
{
    printf("nodes %u sealed %d welcome_ms %.1f placed_ms %.1f broken %u\n", l->n, l->has_key,
           (double)(l->welcome_ns - l->begun_ns) / 1e6, (double)(l->placed_ns - l->begun_ns) / 1e6,
           l->n_broken);
    fflush(stdout);
}

static void follow(struct node *node, const struct member_orders *orders)
{
    const struct member_orders o = *orders;
    for (size_t i = 0; i < o.n_messages && node->conn != NULL; i++)
        channel_conn_send(node->conn, &o.messages[i]);
    if (o.disconnect && node->conn != NULL) {
        channel_conn_end(node->conn);
        node->conn = NULL;
    }
    note_state(node);
    if (o.start_ranks && node->load->n_placed == node->load->n)
        tell(node->load);
    set_timer(node);
    if (o.connect)
        connect_to_roster(node);
    if (o.stop_ranks || o.kill_ranks)
        die("the generation ends: %s", member_stop_text(node->member));
    if (o.open_store)
        step(node,
             &(struct member_input){
                 .type = MEMBER_STORE_OPEN, .host = "127.0.0.1", .port = 1, .agent_store = true});
}

static void step(struct node *node, struct member_input *in)
{
    struct member_orders o;
    in->now_ms = co_now_ms();
    member_step(node->member, in, &o);
    follow(node, &o);
}

/* --- the member's connection --- */

static void on_open(void *arg)
{
    step(arg, &(struct member_input){.type = MEMBER_LINK_UP});
}

static void on_message(void *arg, const struct message *m)
{
    step(arg, &(struct member_input){.type = MEMBER_MESSAGE, .message = m});
}

static void on_end(void *arg, int code, const char *text)
{
    struct node *node = arg;
    (void)code;
    node->conn = NULL;
    node->load->n_broken++;
    step(node, &(struct member_input){.type = MEMBER_LINK_DOWN, .text = text});
}

static void connect_to_roster(struct node *node)
{
    struct load *l = node->load;
    const struct channel_conn_callbacks notes = {
        .on_open = on_open, .on_message = on_message, .on_end = on_end, .arg = node};
    struct co_error err;
    struct seal *seal;
    if (seal_create_node(l->has_key ? &l->key : NULL, CHANNEL_WIRE_VERSION, CHANNEL_WIRE_VERSION,
                         &seal, &err) < 0 ||
        channel_conn_connect(&l->conns, seal, (struct sockaddr *)&l->to, CONNECT_MS, &notes,
                             &node->conn, &err) < 0)
        die("%s", err.text);
}

/* --- start --- */

static void make_node(struct load *l, unsigned i, const char *run_id)
{
    static const struct message_address addresses[] = {{4, {10, 0, 0, 1}}, {6, {0xfd, [15] = 1}}};
    const struct member_limits limits = {.start_timeout_ms = LIMIT_MS};
    struct node *node = &l->nodes[i];
    struct co_error err;
    char name[MESSAGE_NAME_BYTES];
    struct message_hello hello = {.run_id = run_id,
                                  .name = name,
                                  .node_rank = MESSAGE_NO_RANK,
                                  .n_local = RANKS_PER_NODE,
                                  .stop_ms = 1000,
                                  .n_addresses = 2,
                                  .addresses = addresses,
                                  .terms = {.min_nodes = l->n,
                                            .max_nodes = l->n,
                                            .start_timeout_ms = LIMIT_MS,
                                            .rejoin_timeout_ms = LIMIT_MS}};
    snprintf(name, sizeof name, "node%u", i);
    if (getrandom(hello.instance, sizeof hello.instance, 0) != (ssize_t)sizeof hello.instance ||
        member_create(&limits, &hello, "127.0.0.1", &node->member, &err) < 0)
        die("cannot make a node");
    node->load = l;
    node->timer.data = node;
    uv_timer_init(&l->loop, &node->timer);
}

static void on_limit(uv_timer_t *timer)
{
    const struct load *l = timer->data;
    die("after %d s %u of %u nodes have a place", LIMIT_MS / 1000, l->n_placed, l->n);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char bytes[64];
    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(bytes, sizeof bytes);
}

static void on_input(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buf)
{
    (void)buf;
    if (n_read < 0)
        uv_stop(stream->loop);
}

static void open_load(struct load *l, char **argv)
{
    struct co_error err;
    const char *token = getenv("DDP_TOKEN");
    l->n = (unsigned)strtoul(argv[3], NULL, 10);
    l->to = (struct sockaddr_in){.sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons((uint16_t)strtoul(argv[1], NULL, 10))};
    l->has_key = token != NULL && token[0] != '\0';
    if (l->n == 0 || l->n > MAX_NODES || (l->nodes = calloc(l->n, sizeof *l->nodes)) == NULL)
        die("%s: 1 to %d nodes", argv[3], MAX_NODES);
    if (l->has_key && seal_key_init(&l->key, token, strlen(token), &err) < 0)
        die("%s", err.text);
    co_raise_file_limit();
    if (uv_loop_init(&l->loop) < 0 || channel_conn_host_init(&l->conns, &l->loop, &err) < 0)
        die("no event loop");
    uv_timer_init(&l->loop, &l->limit);
    l->limit.data = l;
    uv_pipe_init(&l->loop, &l->input, 0);
    uv_timer_start(&l->limit, on_limit, LIMIT_MS, 0);
    if (uv_pipe_open(&l->input, 0) < 0 ||
        uv_read_start((uv_stream_t *)&l->input, on_alloc, on_input) < 0)
        die("stdin is to be a pipe, whose end is mine");
}

int main(int argc, char **argv)
{
    static struct load load;
    if (argc != 4)
        die("usage: join_load PORT RUN-ID NODES");
    signal(SIGPIPE, SIG_IGN);
    open_load(&load, argv);
    for (unsigned i = 0; i < load.n; i++)
        make_node(&load, i, argv[2]);
    load.begun_ns = co_now_ns();
    for (unsigned i = 0; i < load.n; i++) {
        struct member_orders o;
        member_begin(load.nodes[i].member, co_now_ms(), &o);
        follow(&load.nodes[i], &o);
    }
    uv_run(&load.loop, UV_RUN_DEFAULT);
    return load.n_placed == load.n ? 0 : 1;
}
