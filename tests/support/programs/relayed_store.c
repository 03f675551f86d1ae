/* relayed_store.c - a store in one process and its relays in others, for tests and bench/relay.py.
 *
 *     relayed_store [N_PORTS [plain]]      nothing: one port. plain: links in the clear
 *
 * Prints on a line the pid of the process with the store, its port, the port of its links, and
 * those of the relays; what they refuse on stderr. Ends when stdin does. Links may also be made to
 * 127.0.0.2 and so on: one address has ports for 28,000 connections. */
#include "common/error.h"
#include "common/parse.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/relays/relay_hub.h"
#include "rendezvous/relays/relay_port.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MAX_PORTS = 16384,
    PORTS_A_PROCESS =
        1024, /* a process with relays has three descriptors for each, and its clients */
    MAX_CLIENTS = 65536,
    MAX_DIRECT_CLIENTS = 1 << 17, /* of the store's own port */
    MAX_LINKS = 1 << 18,
    N_ADDRESSES = 8,
    GENERATION = 1
};

struct ports { /* of the process with the store */
    uint16_t store, links;
};

static uv_loop_t loop;
static struct seal_key key;
static const struct seal_key *used_key = &key;
static struct server *store, *listener;
static struct relay_hub *hub;
static struct relay_port *relays[MAX_PORTS];
static int64_t n_relays;
static struct co_error err;

static void on_refused(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "relayed_store: %s\n", text);
}

static int die(const char *what)
{
    fprintf(stderr, "relayed_store: %s: %s\n", what, err.text[0] ? err.text : strerror(errno));
    exit(1);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char ignored[256];
    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(ignored, sizeof ignored);
}

static void on_end(uv_stream_t *in, ssize_t n_read, const uv_buf_t *buf)
{
    (void)buf;
    if (n_read >= 0)
        return;
    uv_close((uv_handle_t *)in, NULL);
    for (int64_t i = 0; i < n_relays; i++)
        relay_port_close(relays[i]);
    relay_hub_close(hub);
    if (store == NULL)
        return;
    server_close(listener, NULL, NULL);
    server_close(store, NULL, NULL);
}

/* Until the descriptor's other end is closed. */
static void run_until_end(int fd)
{
    uv_pipe_t in;
    uv_pipe_init(&loop, &in, 0);
    if (uv_pipe_open(&in, fd) < 0 || uv_read_start((uv_stream_t *)&in, on_alloc, on_end) < 0)
        die("stdin must be a pipe");
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
}

/* --- the process with the store --- */

static void on_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    (void)arg;
    relay_hub_adopt(hub, fd, bytes, len);
}

static void serve_store(int in_fd, int out_fd)
{
    const struct server_opts opts = {.max_clients = MAX_DIRECT_CLIENTS, .on_refused = on_refused};
    const struct server_opts links = {
        .no_store = true, .on_control = on_control, .on_refused = on_refused};
    uv_loop_init(&loop);
    if (server_start(&loop, &opts, &store, &err) < 0 ||
        server_start(&loop, &links, &listener, &err) < 0)
        die("cannot serve");
    const uint16_t number = server_port(listener);
    for (int i = 2; i <= N_ADDRESSES; i++) {
        char address[16];
        snprintf(address, sizeof address, "127.0.0.%d", i);
        if (server_listen(listener, address, number, NULL, &err) < 0)
            die("cannot serve");
    }
    const struct relay_hub_opts o = {.server = store,
                                     .key = used_key,
                                     .run_id = "bench",
                                     .generation = GENERATION,
                                     .max_links = MAX_LINKS,
                                     .max_clients = 1 << 20,
                                     .on_refused = on_refused};
    if (relay_hub_create(&loop, &o, &hub, &err) < 0)
        die("cannot serve");
    const struct ports ports = {server_port(store), number};
    if (write(out_fd, &ports, sizeof ports) != sizeof ports)
        die("write");
    run_until_end(in_fd);
}

/* --- the processes with the relays --- */

static void serve_relays(int64_t n, uint16_t link_port)
{
    uv_loop_init(&loop);
    for (n_relays = 0; n_relays < n; n_relays++) {
        const struct relay_port_opts opts = {.host = "127.0.0.1",
                                             .port = link_port,
                                             .key = used_key,
                                             .run_id = "bench",
                                             .generation = GENERATION,
                                             .max_clients = MAX_CLIENTS,
                                             .on_refused = on_refused};
        if (relay_port_open(&loop, &opts, &relays[n_relays], &err) < 0)
            die("cannot relay");
        printf(" %u", relay_port_number(relays[n_relays]));
    }
    fflush(stdout);
}

/* Each is ready before the next one begins, so that their ports do not mix. */
static void start_relays(int64_t n, uint16_t link_port)
{
    int ready[2];
    char byte = 0;
    if (pipe(ready) < 0)
        die("pipe");
    const pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        serve_relays(n, link_port);
        if (write(ready[1], &byte, 1) != 1)
            die("write");
        run_until_end(0);
        exit(0);
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1)
        die("a process with relays did not start");
    close(ready[0]);
}

int main(int argc, char **argv)
{
    struct ports ports;
    int64_t n = 1;
    int down[2], up[2];
    char byte;
    if (argc > 1 && co_parse_int("N_PORTS", argv[1], 0, MAX_PORTS, &n, &err) < 0)
        die("usage: relayed_store [N_PORTS [plain]]");
    if (argc > 2)
        used_key = NULL;
    signal(SIGPIPE, SIG_IGN); /* as server.h asks */
    if (seal_key_init(&key, "0123456789abcdef0123456789abcdef", 32, &err) < 0 || pipe(down) < 0 ||
        pipe(up) < 0)
        die("cannot begin");
    const pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        close(down[1]);
        serve_store(down[0], up[1]);
        return 0;
    }
    close(down[0]);
    if (read(up[0], &ports, sizeof ports) != sizeof ports)
        die("the store did not start");
    printf("%d %u %u", (int)pid, ports.store, ports.links);
    fflush(stdout);
    for (; n > 0; n -= PORTS_A_PROCESS)
        start_relays(n < PORTS_A_PROCESS ? n : PORTS_A_PROCESS, ports.links);
    printf("\n");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    close(down[1]); /* the store ends when the last process with relays does */
    while (wait(NULL) > 0)
        ;
    return 0;
}
