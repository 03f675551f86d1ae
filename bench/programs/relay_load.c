/* relay_load.c - many nodes of a relayed store, in one process with one thread: what their ddpruns
 * send, without the sockets of their ranks.
 *
 *     relay_load PORT NODES CLIENTS BARRIERS GETS [apart]
 *
 * PORT of 127.0.0.1 takes links (relay_hub.h) of the run "bench" and generation 1, sealed with
 * DDP_TOKEN if that is set; those after the first 25,000 use 127.0.0.2, and so on. A node has a
 * link, and its part of the clients, which do what ranks.h has. The requests that a node's clients
 * make at one moment travel in one frame; apart: in a frame each, as those of ranks that are not in
 * step. Prints a line for each phase. */
#include "ranks.h"

#include "common/error.h"
#include "rendezvous/channel/channel_conn.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/relay/relay_node.h"
#include "rendezvous/relays/relay_link.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum {
    MAX_NODES = 200000,
    MAX_CLIENTS = 2000000,
    MAX_CONNECTING = 512,     /* more at a time would measure an overflow of the backlog */
    LINKS_AN_ADDRESS = 25000, /* it has ports for 28,000 */
    CONNECT_MS = 60000,
    LIMIT_MS = 60000, /* without a reply */
};

struct load;

struct node {
    struct load *load;
    struct channel_conn *conn;
    struct relay_node *end;
    unsigned first, n; /* its clients */
    bool is_open;
};

struct load {
    uv_loop_t loop;
    uv_timer_t limit;
    struct channel_conn_host conns;
    uint16_t port;
    struct seal_key key;
    bool has_key, is_apart;
    uint8_t hello[RELAY_LINK_HELLO_BYTES];
    size_t hello_len;
    struct node *nodes;
    struct relay_client **clients; /* by rank */
    unsigned n_nodes, n_begun, n_open;
    struct ranks ranks;
    struct relay_frame frame;
};

/* --- frames --- */

static void pump(struct node *node)
{
    struct relay_frame *f = &node->load->frame;
    while (node->is_open && channel_conn_n_unsent(node->conn) == 0) {
        relay_node_put(node->end, f);
        if (f->len == 0)
            return;
        channel_conn_send_frame(node->conn, f->bytes, f->len);
    }
}

static void push(struct node *node, unsigned i, const struct load_message *m)
{
    if (relay_client_push(node->load->clients[i], m->bytes, m->len) < 0)
        load_die("a client has no space for its request");
    if (node->load->is_apart)
        pump(node);
}

static void take_replies(struct node *node, struct relay_client *c)
{
    struct load *l = node->load;
    const unsigned i = (unsigned)(size_t)relay_client_user(c);
    const char *why;
    if (relay_client_is_ended(c, &why))
        load_die("a client was closed: %s", why);
    while (co_buf_len(relay_client_replies(c)) > 0) {
        struct load_message m = {0};
        size_t n = co_buf_len(relay_client_replies(c));
        n = n < ranks_n_missing(&l->ranks, i) ? n : ranks_n_missing(&l->ranks, i);
        if (n == 0)
            load_die("the store has answered more than it was asked");
        const bool has_next =
            ranks_receive(&l->ranks, i, co_buf_bytes(relay_client_replies(c)), n, &m);
        relay_client_sent(c, n);
        if (has_next)
            push(node, i, &m);
    }
}

/* --- phases --- */

static void begin_clients(struct node *node)
{
    struct load *l = node->load;
    for (unsigned i = node->first; i < node->first + node->n; i++) {
        struct load_message m = {0};
        ranks_begin(&l->ranks, i, &m);
        push(node, i, &m);
    }
    pump(node);
}

static void follow_phase(struct load *l)
{
    if (l->ranks.n_done < l->ranks.n)
        return;
    if (!ranks_next_phase(&l->ranks))
        exit(0);
    uv_update_time(&l->loop);
    for (unsigned i = 0; i < l->n_nodes; i++)
        begin_clients(&l->nodes[i]);
}

/* --- links --- */

static void connect_some(struct load *l);

static void on_limit(uv_timer_t *timer)
{
    const struct load *l = timer->data;
    load_die("nothing comes for %d s; %u of %u links, %u of %u clients are done", LIMIT_MS / 1000,
             l->n_open, l->n_nodes, l->ranks.n_done, l->ranks.n);
}

static void on_open(void *arg)
{
    struct node *node = arg;
    struct load *l = node->load;
    struct co_error err = {0};
    node->is_open = true;
    l->n_open++;
    channel_conn_send_frame(node->conn, l->hello, l->hello_len);
    for (unsigned i = node->first; i < node->first + node->n; i++)
        if (relay_node_open(node->end, (void *)(size_t)i, &l->clients[i], &err) < 0)
            load_die("%s", err.text);
    begin_clients(node);
    connect_some(l);
}

static void on_frame(void *arg, const uint8_t *frame, size_t len)
{
    struct node *node = arg;
    struct relay_client *c;
    struct co_error err = {0};
    uv_timer_again(&node->load->limit);
    if (relay_node_take(node->end, frame, len, &err) < 0)
        load_die("%s", err.text);
    while ((c = relay_node_next_due(node->end)) != NULL)
        take_replies(node, c);
    pump(node);
    follow_phase(node->load);
}

static void on_sent(void *arg)
{
    pump(arg);
}

static void on_end(void *arg, int code, const char *text)
{
    (void)arg;
    (void)code;
    load_die("a link has ended: %s", text);
}

static void connect_node(struct load *l, struct node *node)
{
    const struct relay_node_limits limits = {
        .max_clients = node->n, .window_bytes = RELAY_LINK_WINDOW_BYTES, .max_bytes = UINT64_MAX};
    const struct channel_conn_callbacks callbacks = {.on_open = on_open,
                                                     .on_frame = on_frame,
                                                     .on_sent = on_sent,
                                                     .on_end = on_end,
                                                     .arg = node};
    const uint32_t address = INADDR_LOOPBACK + (uint32_t)(node - l->nodes) / LINKS_AN_ADDRESS;
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(address), .sin_port = htons(l->port)};
    struct co_error err = {0};
    struct seal *seal;
    if (relay_node_create(&limits, &node->end, &err) < 0 ||
        seal_create_node(l->has_key ? &l->key : NULL, RELAY_LINK_VERSION, RELAY_LINK_VERSION, &seal,
                         &err) < 0 ||
        channel_conn_connect(&l->conns, seal, (const struct sockaddr *)&to, CONNECT_MS, &callbacks,
                             &node->conn, &err) < 0)
        load_die("%s", err.text);
}

static void connect_some(struct load *l)
{
    while (l->n_begun < l->n_nodes && l->n_begun - l->n_open < MAX_CONNECTING)
        connect_node(l, &l->nodes[l->n_begun++]);
}

/* --- the command line --- */

static void make_nodes(struct load *l, unsigned n_nodes, unsigned n_clients)
{
    l->n_nodes = n_nodes;
    l->nodes = calloc(n_nodes, sizeof *l->nodes);
    l->clients = calloc(n_clients, sizeof *l->clients);
    if (l->nodes == NULL || l->clients == NULL)
        load_die("no memory");
    for (unsigned i = 0, first = 0; i < n_nodes; i++) {
        const unsigned end = (unsigned)((uint64_t)n_clients * (i + 1) / n_nodes);
        l->nodes[i] = (struct node){.load = l, .first = first, .n = end - first};
        first = end;
    }
}

static void make_load(struct load *l, uint16_t port)
{
    const char *token = getenv("DDP_TOKEN");
    struct co_error err = {0};
    l->port = port;
    l->has_key = token != NULL && token[0] != '\0';
    if (l->has_key && seal_key_init(&l->key, token, strlen(token), &err) < 0)
        load_die("%s", err.text);
    l->hello_len = relay_link_hello(1, "bench", l->hello);
    if (uv_loop_init(&l->loop) < 0 || channel_conn_host_init(&l->conns, &l->loop, &err) < 0)
        load_die("no event loop");
    uv_timer_init(&l->loop, &l->limit);
    l->limit.data = l;
    uv_timer_start(&l->limit, on_limit, LIMIT_MS, LIMIT_MS);
}

int main(int argc, char **argv)
{
    static struct load load;
    if (argc < 6 || argc > 7)
        load_die("usage: relay_load PORT NODES CLIENTS BARRIERS GETS [apart]");
    const unsigned n_nodes = load_number(argv[2], 1, MAX_NODES);
    const unsigned n_clients = load_number(argv[3], n_nodes, MAX_CLIENTS);
    signal(SIGPIPE, SIG_IGN);
    load_allow_many_files();
    make_load(&load, (uint16_t)load_number(argv[1], 1, UINT16_MAX));
    make_nodes(&load, n_nodes, n_clients);
    load.is_apart = argc == 7;
    ranks_init(&load.ranks, n_clients, load_number(argv[4], 0, 100000),
               load_number(argv[5], 0, 1 << 20));
    connect_some(&load);
    uv_run(&load.loop, UV_RUN_DEFAULT);
    return 1;
}
