/* etcd_plugin.h - the interface between ddprun and ddprun-etcd.so.
 *
 * The plug-in is an elector (elector.h) and the connection to etcd, by libcurl. It is loaded only
 * when etcd is requested, because loading that library takes longer than ddprun takes to start. It
 * has no loop of its own: ddprun watches its sockets and its clock. Both come from one build; the
 * version is checked because an installation may be only half updated. */
#ifndef DDP_RENDEZVOUS_ETCD_ETCD_PLUGIN_H
#define DDP_RENDEZVOUS_ETCD_ETCD_PLUGIN_H

#include "rendezvous/election/elector.h"

#include <stddef.h>
#include <stdint.h>

struct co_error;
struct etcd; /* opaque */

#define ETCD_PLUGIN_VERSION 1
#define ETCD_PLUGIN_SYMBOL  "ddprun_etcd_plugin" /* a struct etcd_plugin */

/* Where etcd is, and how to come in. Texts are borrowed for the call; NULL: none. */
struct etcd_config {
    const char *host; /* a name or an address in figures */
    uint16_t port;
    bool is_https;
    const char *ca_cert;    /* a file; NULL: those that the system trusts */
    const char *cert, *key; /* files; ours */
    const char *user, *password;
    const char *prefix, *run_id; /* where the keys are */
    uint64_t request_ms;         /* etcd answers within, or has failed */
    uint64_t last_words_ms;      /* the same for what is asked at the end */
    struct elector_limits limits;
};

enum { ETCD_READABLE = 1, ETCD_WRITABLE = 2 };

/* What the plug-in wants of ddprun. on_orders may be called from within each call of struct
 * etcd_plugin but close(). */
struct etcd_host {
    /* Call ready() when one of these events has come; 0: never again, it is about to be closed */
    void (*watch)(void *arg, int fd, int events);
    void (*set_alarm)(void *arg, uint64_t at_ms); /* call alarm() then; CO_NEVER_MS: do not */

    /* Lent for the call. What concerns requests is done already. */
    void (*on_orders)(void *arg, const struct elector_orders *orders);

    /* etcd has answered over the interface with this numeric address: where do other nodes reach a
     * roster here? returns whether that is known */
    bool (*find_address)(void *arg, const char *own, struct elector_address *ret);
    void *arg;
};

struct etcd_plugin {
    uint32_t version;

    /* returns   0; -EINVAL: the configuration makes no sense; -ENOMEM */
    int (*open)(const struct etcd_config *config, const struct etcd_host *host, struct etcd **ret,
                struct co_error *err);
    void (*begin)(struct etcd *e);
    void (*hurry)(struct etcd *e, bool hurries);
    void (*commit)(struct etcd *e, const struct elector_record *record);
    void (*stop)(struct etcd *e, const struct elector_record *record); /* NULL as in elector.h */
    void (*ready)(struct etcd *e, int fd, int events);
    void (*alarm)(struct etcd *e);
    uint32_t (*ttl_s)(const struct etcd *e);
    const char *(*trouble)(const struct etcd *e); /* see elector_trouble() */
    void (*close)(struct etcd *e);                /* at once; NULL is fine */
};

#endif
