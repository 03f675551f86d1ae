#include "etcd_config.h"

#include "launcher/job/job_spec.h"

#include "common/error.h"
#include "common/scope.h"
#include "rendezvous/channel/token.h"
#include "rendezvous/membership/lease.h"
#include "rendezvous/net/address.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    LEADER_TTL_S = 2,       /* the least that etcd gives with its usual settings */
    LEADER_GRACE_MS = 3000, /* a lease of ranks is so much longer than the leader's: by then etcd
                             * has dropped the leader, and the nodes that ask etcd have learned
                             * it */
    RECORD_TTL_MIN_S = 60,
    ASK_MS = 1000,
    HURRY_MS = 200,
    PREFER_MS = 1500,
    REQUEST_MS = 800,
    LAST_WORDS_MS = 500,
    CONFIRM_MIN_MS = 10000,
};

static const char *given(const char *text)
{
    return *text != '\0' ? text : NULL;
}

static int read_password(const struct etcd_settings *s, char line[ETCD_SETTING_BYTES],
                         struct co_error *err)
{
    snprintf(line, ETCD_SETTING_BYTES, "%s", s->password);
    if (s->password_file[0] == '\0')
        return 0;
    co_autoclose_fd int fd = token_open_file("the etcd password", s->password_file, err);
    ssize_t n = fd < 0 ? fd : read(fd, line, ETCD_SETTING_BYTES - 1);
    if (fd < 0)
        return fd;
    if (n <= 0)
        return co_fail(err, n < 0 ? -errno : -EIO, "cannot read the etcd password from '%s': %s",
                       s->password_file, n < 0 ? strerror(errno) : "the file is empty");
    line[n] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    return 0;
}

static struct elector_limits find_elector_limits(const struct job_world *w)
{
    uint64_t timeout_s = w->failover_timeout_ms / 1000;
    bool is_timeout = timeout_s > RECORD_TTL_MIN_S && timeout_s < UINT32_MAX;
    return (struct elector_limits){.ttl_s = LEADER_TTL_S,
                                   .record_ttl_s =
                                       is_timeout ? (uint32_t)timeout_s : RECORD_TTL_MIN_S,
                                   .ask_ms = ASK_MS,
                                   .hurry_ms = HURRY_MS,
                                   .prefer_ms = PREFER_MS,
                                   .never_leads = w->host == JOB_HOST_ELSEWHERE};
}

int etcd_config_make(const struct job_spec *spec, char password[ETCD_SETTING_BYTES],
                     struct etcd_config *ret, struct co_error *err)
{
    const struct job_world *w = &spec->world;
    const struct etcd_settings *s = w->etcd;
    int rc = read_password(s, password, err);
    if (rc < 0)
        return rc;
    *ret = (struct etcd_config){.host = w->endpoint_host,
                                .port = w->endpoint_port,
                                .is_https = s->is_https,
                                .ca_cert = given(s->ca_cert),
                                .cert = given(s->cert),
                                .key = given(s->key),
                                .user = given(s->user),
                                .password = given(password),
                                .prefix = s->prefix,
                                .run_id = spec->run_id,
                                .request_ms = REQUEST_MS,
                                .last_words_ms = LAST_WORDS_MS,
                                .limits = find_elector_limits(w)};
    return 0;
}

/* The nodes are waited for as long as they, or those that stay with another roster, may run: a node
 * that looks for a new leader finds one in the time between two questions; an old leader that has
 * lost etcd misses the nodes that have left it after a keep-alive and a half; and then a lease has
 * to end. */
static uint64_t absent_ms(const struct roster_limits *limits)
{
    return ASK_MS + limits->keep_alive_ms * 3 / 2 + limits->lease_ms + LEASE_MARGIN_MS;
}

struct roster_limits etcd_config_limits(const struct job_world *w, uint32_t leader_ttl_s)
{
    uint64_t least_ms = (uint64_t)leader_ttl_s * 1000 + LEADER_GRACE_MS;
    struct roster_limits limits = {
        .keep_alive_ms = w->keep_alive_ms > 0 ? w->keep_alive_ms : LEASE_KEEP_ALIVE_MS,
        .lease_ms = w->lease_ms > least_ms ? w->lease_ms : least_ms,
        .confirm_ms = w->rejoin_timeout_ms > CONFIRM_MIN_MS ? w->rejoin_timeout_ms : CONFIRM_MIN_MS,
    };
    limits.absent_ms = absent_ms(&limits);
    return limits;
}

/* At all addresses, unless etcd is meant to be reached on this machine only: then at the address
 * that the others get. */
const char *etcd_config_listen_where(const struct job_world *w)
{
    if (!address_host_is_loopback(w->endpoint_host))
        return "::";
    return w->local_addr != NULL ? w->local_addr : "localhost";
}

/* As configured; or the address by which this node reaches etcd. A node that reaches it by loopback
 * is on etcd's own machine, whose name others know. */
void etcd_config_find_host(const struct job_world *w, const char *own, char ret[ELECTOR_HOST_BYTES])
{
    struct sockaddr_storage address;
    const char *host = w->local_addr;
    char text[ADDRESS_TEXT_BYTES];
    if (host == NULL && address_parse(own, 0, &address) == 0 &&
        address_may_tell(w->endpoint_host, &address) &&
        address_print_host(&address, text, sizeof text) == 0)
        host = text;
    snprintf(ret, ELECTOR_HOST_BYTES, "%s", host != NULL ? host : w->endpoint_host);
}
