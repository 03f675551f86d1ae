/* roster_link.h - how a node gets to its job's roster, as node_roster.h needs it. The module that
 * starts the node decides whether the link uses TCP or stays in this process. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_ROSTER_LINK_H
#define DDP_LAUNCHER_MEMBERSHIP_ROSTER_LINK_H

#include "common/error.h"
#include "rendezvous/membership/message.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct job_spec;
struct roster_restart;

/* Called from the loop, never from within a call of struct roster_link_ops. */
struct roster_link_callbacks {
    void (*on_up)(void *arg, bool is_here); /* messages may be sent; is_here: to a roster in this
                                               process, now and whenever it is up again */
    void (*on_message)(void *arg, const struct message *m); /* lent for the call */

    /* It has ended, or could not be made. Not after disconnect().
     * exit_code   0; else a retry would fail in the same way, and this is the exit status
     * rejected    with exit_code: the other end rejected this node (another token), without any
     *             proof */
    void (*on_down)(void *arg, const char *text, int exit_code, bool rejected);

    /* The service that knows which node has the roster was asked at asked_ms, and answered that no
     * node has it: another one will follow. NULL: not needed */
    void (*on_vacant)(void *arg, uint64_t asked_ms);

    /* Whether this node's spawner has to kill the ranks when the node's lease is over: a roster in
     * this process may need no lease, as long as the link is up. note_leased() is the answer if it
     * is needed. NULL: not needed */
    void (*on_lease)(void *arg, bool is_needed);

    /* The spawner is to send heartbeats there, and suspend the ranks if none is acknowledged: a
     * copy of the descriptor, lent; from_ms as in spawner.h. NULL: not needed */
    void (*on_heartbeats)(void *arg, int fd, uint64_t from_ms);

    /* The spawner is to suspend the ranks at end_ms, as the coordinator is in this process. NULL:
     * not needed */
    void (*on_end)(void *arg, uint64_t end_ms);

    /* something worth a line on the terminal */
    void (*on_note)(void *arg, enum co_severity severity, const char *text);
    void *arg;
};

/* The exit statuses of on_down(). */
enum {
    ROSTER_LINK_UNAVAILABLE = 69, /* the port is taken, or another protocol is there */
    ROSTER_LINK_NO_ACCESS = 77,   /* another token, or one at one end only */
};

/* ... for the reason with which a control link ends (channel_link.h). */
static inline int roster_link_exit_code(int code)
{
    return code == -EACCES ? ROSTER_LINK_NO_ACCESS : code == -EPROTO ? ROSTER_LINK_UNAVAILABLE : 0;
}

/* What the spawner reports about heartbeats. */
enum roster_link_sign {
    ROSTER_LINK_SILENT, /* the coordinator's host acknowledges none */
    ROSTER_LINK_HEARD,  /* the coordinator has answered since */
    ROSTER_LINK_GONE,   /* the connection for them has ended */
};

struct roster_link_ops {
    /* Make one that is down. Notes are copied. returns 0, -errno */
    int (*open)(uv_loop_t *loop, const struct job_spec *spec,
                const struct roster_link_callbacks *callbacks, void **ret_link,
                struct co_error *err);

    /* Make one attempt: on_up or on_down follows. An older connection is dropped. */
    void (*connect)(void *link);

    /* When up; else nothing happens. */
    void (*send)(void *link, const struct message *m);

    /* What was sent still goes out. Fine when it is down. */
    void (*disconnect)(void *link);

    /* The numeric address by which this node reaches the roster: others reach it by the same, most
     * likely. returns 0; -ENOTCONN: not known */
    int (*own_address)(const void *link, char *text, size_t n);

    /* The generation's store is about to listen at this port. If the roster is in this process and
     * listens there itself, it steps aside until take_port(), and nodes that come meanwhile are to
     * be handed over by adopt(): a socket, taken over, and what was read from it already.
     * returns whether it did */
    bool (*lend_port)(void *link, uint16_t port);
    void (*adopt)(void *link, int fd, const uint8_t *bytes, size_t len);

    /* The store is closed. Fine if nothing was lent.
     * returns 0; -errno: no node can join any more, those that have stay */
    int (*take_port)(void *link, struct co_error *err);

    /* For a roster that is stepped in send(): call on_up or on_message with what it has sent, once.
     * NULL: they are called from the loop. returns whether there was anything */
    bool (*deliver)(void *link);

    /* The answer to on_lease(), `is_needed`: the spawner has a lease that runs. NULL: nothing
     * asks */
    void (*note_leased)(void *link);

    /* NULL: heartbeats are not used */
    void (*note_sign)(void *link, enum roster_link_sign sign);

    /* What followed the end of the last generation; NULL, from a roster in this process: nothing
     * does. */
    const struct roster_restart *(*restart)(const void *link);

    /* Whatever pause there is before a restart is over. */
    void (*hurry)(void *link);

    /* Disconnect and free, from the loop. No notes any more. */
    void (*close)(void *link);
};

#endif
