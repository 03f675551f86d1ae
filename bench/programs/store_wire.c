/* Messages and sockets of the load programs. */
#include "store_load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { /* opcodes of torch 2.2 and later */
       OP_VALIDATE = 0,
       OP_SET = 1,
       OP_GET = 3,
       OP_ADD = 4,
       OP_WAIT = 6,
       OP_PING = 13,
};

static const char value[LOAD_VALUE_BYTES + 1] =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

void load_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(1);
}

unsigned load_number(const char *text, unsigned min, unsigned max)
{
    char *end;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    if (errno != 0 || *end != '\0' || end == text || n < min || n > max)
        load_die("'%s' is not a number from %u to %u", text, min, max);
    return (unsigned)n;
}

void load_allow_many_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

uint64_t load_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- messages --- */

static void put(struct load_message *m, const void *bytes, size_t len)
{
    if (len > sizeof m->bytes - m->len)
        load_die("a message is too long");
    memcpy(m->bytes + m->len, bytes, len);
    m->len += len;
}

static void put_op(struct load_message *m, uint8_t op)
{
    put(m, &op, 1);
}

static void put_u64(struct load_message *m, uint64_t number)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> 8 * i);
    put(m, bytes, sizeof bytes);
}

static void put_string(struct load_message *m, const char *text, size_t len)
{
    put_u64(m, len);
    put(m, text, len);
}

__attribute__((format(printf, 2, 3))) static void put_text(struct load_message *m,
                                                           const char *format, ...)
{
    char text[LOAD_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(m, text, strlen(text));
}

void load_put_hello(struct load_message *m, enum load_protocol protocol)
{
    static const uint8_t magic[4] = {0xce, 0xf7, 0x85, 0x3c};
    if (protocol == LOAD_REDIS) {
        put_text(m, "PING\r\n");
        m->reply_bytes += strlen("+PONG\r\n");
        return;
    }
    put_op(m, OP_VALIDATE);
    put(m, magic, sizeof magic);
    put_op(m, OP_PING);
    put(m, magic, sizeof magic);
    m->reply_bytes += 4;
}

void load_put_set(struct load_message *m, enum load_protocol protocol, const char *key)
{
    if (protocol == LOAD_REDIS) {
        put_text(m, "*3\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%d\r\n%s\r\n", strlen(key), key,
                 LOAD_VALUE_BYTES, value);
        m->reply_bytes += strlen("+OK\r\n");
        return;
    }
    put_op(m, OP_SET);
    put_string(m, key, strlen(key));
    put_string(m, value, LOAD_VALUE_BYTES);
}

void load_put_get(struct load_message *m, enum load_protocol protocol, const char *key)
{
    if (protocol == LOAD_REDIS) {
        put_text(m, "*2\r\n$3\r\nGET\r\n$%zu\r\n%s\r\n", strlen(key), key);
        m->reply_bytes += strlen("$64\r\n") + LOAD_VALUE_BYTES + strlen("\r\n");
        return;
    }
    put_op(m, OP_GET);
    put_string(m, key, strlen(key));
    m->reply_bytes += 8 + LOAD_VALUE_BYTES;
}

void load_put_add(struct load_message *m, enum load_protocol protocol, const char *key)
{
    if (protocol == LOAD_REDIS) { /* the reply is as long as its number: m->reply_bytes stays 0 */
        put_text(m, "*3\r\n$6\r\nINCRBY\r\n$%zu\r\n%s\r\n$1\r\n1\r\n", strlen(key), key);
        return;
    }
    put_op(m, OP_ADD);
    put_string(m, key, strlen(key));
    put_u64(m, 1);
    m->reply_bytes += 8;
}

void load_put_wait(struct load_message *m, const char *key)
{
    put_op(m, OP_WAIT);
    put_u64(m, 1);
    put_string(m, key, strlen(key));
    m->reply_bytes += 1;
}

/* --- sockets --- */

static void connect_from(int fd, const struct load_target *target, unsigned i, bool may_wait)
{
    const int on = 1;
    const struct linger none = {.l_onoff = 1}; /* close with a reset: no port stays in TIME_WAIT */
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK + i % LOAD_SOURCES)};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(target->ports[i % target->n_ports]),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    if (bind(fd, (struct sockaddr *)&from, sizeof from) < 0)
        load_die("bind: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && !(may_wait && errno == EINPROGRESS))
        load_die("connect: %s", strerror(errno));
}

int load_connect(const struct load_target *target, unsigned i)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        load_die("socket: %s", strerror(errno));
    connect_from(fd, target, i, false);
    return fd;
}

int load_connect_begin(const struct load_target *target, unsigned i)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        load_die("socket: %s", strerror(errno));
    connect_from(fd, target, i, true);
    return fd;
}

void load_send(int fd, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n < 0)
            load_die("send: %s", strerror(errno));
        at += n;
        len -= (size_t)n;
    }
}

void load_receive(int fd, void *bytes, size_t len)
{
    uint8_t *at = bytes;
    while (len > 0) {
        ssize_t n = recv(fd, at, len, 0);
        if (n <= 0)
            load_die("recv: %s", n == 0 ? "the server closed the connection" : strerror(errno));
        at += n;
        len -= (size_t)n;
    }
}

void load_ask(int fd, const struct load_message *m)
{
    uint8_t reply[LOAD_MESSAGE_BYTES];
    load_send(fd, m->bytes, m->len);
    load_receive(fd, reply, m->reply_bytes);
}

int load_hello(const struct load_target *target, unsigned i)
{
    struct load_message hello = {0};
    int fd = load_connect(target, i);
    load_put_hello(&hello, target->protocol);
    load_ask(fd, &hello);
    return fd;
}
