/* The cases of the store's server, through a relay: a client cannot find out that there is one. */
#include "common/error.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/relays/relay_hub.h"
#include "rendezvous/relays/relay_port.h"
#include "tests/support/suite.h"
#include "tests/unit/rendezvous/server/served.h"

#include <check.h>

static struct seal_key key;
static struct server *listener; /* of links */
static struct relay_hub *hub;
static struct relay_port *port;
static struct co_error err;

static void on_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    (void)arg;
    relay_hub_adopt(hub, fd, bytes, len);
}

static void open_hub(uv_loop_t *loop, struct server *server, const struct server_opts *opts)
{
    const struct relay_hub_opts o = {.server = server,
                                     .key = &key,
                                     .run_id = "job",
                                     .generation = 3,
                                     .max_links = 2,
                                     .max_clients =
                                         opts->max_clients != 0 ? opts->max_clients : 1000,
                                     .max_buffer_bytes = opts->max_bytes,
                                     .mid_request_ms = opts->mid_frame_ms,
                                     .on_refused = opts->on_refused,
                                     .arg = opts->arg};
    const struct server_opts links = {.no_store = true, .on_control = on_control};
    ck_assert_int_eq(relay_hub_create(loop, &o, &hub, &err), 0);
    ck_assert_msg(server_start(loop, &links, &listener, &err) == 0, "%s", err.text);
}

static uint16_t front_open(uv_loop_t *loop, struct server *server, const struct server_opts *opts)
{
    ck_assert_int_eq(seal_key_init(&key, "0123456789abcdef0123456789abcdef", 32, &err), 0);
    open_hub(loop, server, opts);
    const struct relay_port_opts o = {.host = "127.0.0.1",
                                      .port = server_port(listener),
                                      .key = &key,
                                      .run_id = "job",
                                      .generation = 3,
                                      .max_clients = 1000,
                                      .on_refused = opts->on_refused,
                                      .arg = opts->arg};
    ck_assert_msg(relay_port_open(loop, &o, &port, &err) == 0, "%s", err.text);
    return relay_port_number(port);
}

static uint32_t front_n_clients(void)
{
    return relay_port_n_clients(port);
}

static void front_close(void)
{
    relay_port_close(port);
    relay_hub_close(hub);
    server_close(listener, NULL, NULL);
}

TEST_SUITE(relayed)
{
    static const struct served_front front = {front_open, front_n_clients, front_close};
    Suite *suite = suite_create("relayed");
    served_front = &front;
    suite_add_tcase(suite, served_case());
    return suite;
}
