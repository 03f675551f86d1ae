/* served.h - a real server on loopback, in a thread of its own, and raw clients to talk to it.
 * Every wait has a deadline; what fails ends the test. */
#ifndef DDP_TESTS_UNIT_RENDEZVOUS_SERVER_SERVED_H
#define DDP_TESTS_UNIT_RENDEZVOUS_SERVER_SERVED_H

#include "rendezvous/server/server.h"

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
    SERVED_DEADLINE_MS = 20000,
};

struct served; /* opaque */

/* What stands between the clients and the server, in the same loop. NULL: nothing does. To be set
 * before served_start(). */
struct served_front {
    uint16_t (*open)(uv_loop_t *loop, struct server *server, const struct server_opts *opts);
    uint32_t (*n_clients)(void);
    void (*close)(void);
};
extern const struct served_front *served_front;

/* opts NULL: the defaults. on_refused is the fixture's own. */
struct served *served_start(const struct server_opts *opts);
void served_stop(struct served *s); /* with all its connections */
uint16_t served_port(const struct served *s);

/* Waits until the server reports a refusal that contains `text`. */
void served_await_refused(struct served *s, const char *text);
void served_await_n_clients(struct served *s, uint32_t n);

/* What any served store owes its clients: test_server.c. The suites of several components have it,
 * each with its own served_start(). */
TCase *served_case(void);

/* An IPv4 address of this machine that is not loopback. returns whether there is one */
bool find_own_address(struct sockaddr_storage *ret);

/* Raw clients. */
int raw_connect(uint16_t port);
int raw_connect_at(const struct sockaddr_storage *to);
void raw_send(int fd, const void *bytes, size_t n);
void raw_send_hex(int fd, const char *hex);
void raw_receive(int fd, void *bytes, size_t n); /* exactly n */
void raw_expect_hex(int fd, const char *hex);
void raw_expect_end(int fd); /* nothing more but the end of the connection */
bool raw_is_silent(int fd);  /* open, with nothing to read now */

#endif
