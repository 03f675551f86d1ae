/* store_load.h - common code of the load programs: messages, sockets, the clock. */
#ifndef DDP_BENCH_PROGRAMS_STORE_LOAD_H
#define DDP_BENCH_PROGRAMS_STORE_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LOAD_VALUE_BYTES = 64,
    LOAD_MESSAGE_BYTES = 512,
    LOAD_PORTS = 16384,
    LOAD_SOURCES = 16, /* clients connect from 127.0.0.1 .. 127.0.0.16 in turn */
};

enum load_protocol {
    LOAD_TCPSTORE,
    LOAD_REDIS,
    LOAD_NOTHING, /* the messages of TCPSTORE, to a server that replies with zeros */
};

struct load_target {
    enum load_protocol protocol;
    const uint16_t *ports; /* on 127.0.0.1: clients use them in turn */
    unsigned n_ports;
};

struct load_message {
    uint8_t bytes[LOAD_MESSAGE_BYTES];
    size_t len;
    size_t reply_bytes; /* 0: the reply is a line and ends at its end */
};

/* Append a request to `m` and add the length of its reply to reply_bytes. */
void load_put_hello(struct load_message *m, enum load_protocol protocol); /* with a PING */
void load_put_set(struct load_message *m, enum load_protocol protocol, const char *key);
void load_put_get(struct load_message *m, enum load_protocol protocol, const char *key);
void load_put_add(struct load_message *m, enum load_protocol protocol, const char *key);
void load_put_wait(struct load_message *m, const char *key); /* TCPSTORE only */

uint64_t load_now_ns(void);
unsigned load_number(const char *text, unsigned min, unsigned max); /* ends the program */
void load_allow_many_files(void);

/* Sockets. These functions end the program when they fail: an incomplete run is worthless. */
int load_connect(const struct load_target *target, unsigned i);       /* blocking, connected */
int load_connect_begin(const struct load_target *target, unsigned i); /* non-blocking */
void load_send(int fd, const void *bytes, size_t len);                /* all of it */
void load_receive(int fd, void *bytes, size_t len);                   /* exactly `len` bytes */
void load_ask(int fd, const struct load_message *m);                  /* send, await the reply */
int load_hello(const struct load_target *target, unsigned i);         /* connect, shake hands */
_Noreturn __attribute__((format(printf, 1, 2))) void load_die(const char *format, ...);

/* The runs. Each prints one line of "name value" pairs. */
void load_turns(const struct load_target *target, unsigned n_clients, double seconds);
void load_pipeline(const struct load_target *target, unsigned n_sets);
void load_join(const struct load_target *target, unsigned n_clients);
void load_ranks(const struct load_target *target, unsigned n, unsigned n_barriers, unsigned n_gets);
void load_latency(const struct load_target *target, unsigned n_idle, unsigned n_gets);
void load_hold(const struct load_target *target, unsigned n_clients); /* until stdin ends */
void load_fill(const struct load_target *target, unsigned n_keys);

#endif
