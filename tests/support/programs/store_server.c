/* store_server.c - the generation's store as a program, for tests.
 *
 *     store_server [PORT [ADDRESS [MAX_BYTES]]]      nothing: any free port, 127.0.0.1, 1 GiB
 *
 * Prints the port on a line of its own, what it refuses on stderr, and ends when stdin does. */
#include "common/error.h"
#include "common/parse.h"
#include "rendezvous/server/server.h"

#include <signal.h>
#include <stdio.h>

static void on_refused(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "store_server: %s\n", text);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char ignored[256];
    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(ignored, sizeof ignored);
}

static void on_stdin(uv_stream_t *in, ssize_t n_read, const uv_buf_t *buf)
{
    (void)buf;
    if (n_read >= 0)
        return;
    uv_close((uv_handle_t *)in, NULL);
    server_close(in->data, NULL, NULL);
}

int main(int argc, char **argv)
{
    struct co_error err = {0};
    int64_t port = 0, max_bytes = 0;
    struct server *server;
    uv_loop_t loop;
    uv_pipe_t in;
    if ((argc > 1 && co_parse_int("PORT", argv[1], 0, 65535, &port, &err) < 0) ||
        (argc > 3 && co_parse_int("MAX_BYTES", argv[3], 1, INT64_MAX, &max_bytes, &err) < 0)) {
        fprintf(stderr, "store_server: %s\n", err.text);
        return 2;
    }
    struct server_opts opts = {.bind_addr = argc > 2 ? argv[2] : NULL,
                               .port = (uint16_t)port,
                               .max_bytes = (uint64_t)max_bytes,
                               .on_refused = on_refused};
    signal(SIGPIPE, SIG_IGN); /* as server.h asks */
    uv_loop_init(&loop);
    if (server_start(&loop, &opts, &server, &err) < 0) {
        fprintf(stderr, "store_server: %s\n", err.text);
        return 1;
    }
    uv_pipe_init(&loop, &in, 0);
    in.data = server;
    if (uv_pipe_open(&in, 0) < 0 || uv_read_start((uv_stream_t *)&in, on_alloc, on_stdin) < 0) {
        fprintf(stderr, "store_server: stdin must be a pipe\n");
        return 2;
    }
    printf("%u\n", server_port(server));
    fflush(stdout);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    return 0;
}
