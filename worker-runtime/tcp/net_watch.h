/* net_watch.h - news of failure between nodes.
 *
 * Every rank holds a connection to a rank of each other node on which only the end is sent: why the
 * job broke over there, or that the other side has left; and questions whether a rank still waits,
 * with the answers. The kernel ends the connection when the other side dies. So no data in front of
 * it can hold the news up. A rank writes what it receives into the abort word of its node, as text;
 * what is in the abort word of its node it passes on. Groups and threads of a rank share one watch.
 * Thread-safe.
 *
 * The first cause is to be reported, not its consequences. So a connection that ends without a
 * message is not blamed for a short time, in which another rank may have the cause: 20 ms where a
 * watch ends, and NET_WATCH_WAIT_MS elsewhere, where perhaps only this rank has seen it. */
#ifndef DDP_WORKER_RUNTIME_TCP_NET_WATCH_H
#define DDP_WORKER_RUNTIME_TCP_NET_WATCH_H

#include "net_links.h"

/* Why a job broke, as ranks of different nodes report it to each other. A rank that leaves a broken
 * job sends it on every connection before it closes it, so that no peer takes the end of a
 * connection for the cause. */
#define NET_ABORT_TEXT_BYTES 248
struct net_abort { /* as it travels, 252 bytes */
    int32_t code;  /* a negative errno */
    char text[NET_ABORT_TEXT_BYTES];
};

/* text   cut to NET_ABORT_TEXT_BYTES - 1 */
void net_abort_set(struct net_abort *c, int code, const char *text);

/* Make what another rank sent fit to be shown: the text ends and has no control characters, is not
 * empty, and the code is an errno (else -ECONNRESET). Until then it is untrusted. */
void net_abort_check(struct net_abort *c);

struct control;
struct net_watch; /* opaque */
struct transport_shm;

struct net_watch_opts {
    struct net_links_opts links;
    const unsigned *peer; /* that this rank watches; copied */
    unsigned n_peers;
    struct control *control;         /* borrowed */
    unsigned local_rank;             /* on the node */
    const struct transport_shm *shm; /* of the node: has words for its abort word; borrowed */
};

/* Also connects to its peers, and waits until they have connected to all of theirs: a rank that
 * began to work before would take those that still try for late. A rank that has no path to a peer
 * reports that to its node and to all ranks that it has reached, so that all fail with the same
 * text: the one that names the path.
 *
 * returns   0; -ETIMEDOUT, the text names the rank that did not come; -ECONNRESET another rank
 *           could not connect, or is gone; -ENOMEM; -errno. On failure the listener is closed */
int net_watch_create(const struct net_watch_opts *opts, uint64_t deadline_ms,
                     struct net_watch **ret, struct co_error *err);
/* Send goodbye, or why the job broke, and close. NULL is fine. */
void net_watch_destroy(struct net_watch *w);

/* This rank cannot reach its peers, and stops. If no path leads to one of them
 * (net_links_is_unreachable()), it breaks the job with its own text. Otherwise another rank has
 * died, which ddprun reports to all. */
void net_watch_tell_failure(struct net_watch *w, int code, const struct co_error *err);

/* The failure of a rank that is not connected to its peers, after a rank has broken the job with
 * its text.
 *
 * shm       of the node: has this text
 * code      of this rank's own failure, described in err
 * returns   code, err as it was: both this rank and that text name a path that does not work; else
 *           -ECONNRESET and that text: another rank has died, and this one can continue in another
 *           generation */
int net_watch_judge_failure(const struct transport_shm *shm, int code, struct co_error *err);

/* Break the job, if it is not broken yet. The first cause stays.
 * returns   whether it was this one */
bool net_watch_tell(struct net_watch *w, int code, const char *text);

/* Receive what there is, and pass on the node's abort word.
 * returns   whether the job is broken */
bool net_watch_look(struct net_watch *w);

/* Why it is broken. returns the -errno in err */
int net_watch_why(const struct net_watch *w, struct co_error *err);
/* The same, after a look, for a rank that leaves: to be sent. Waits until it is clear what the end
 * of a watch means. returns whether the job is broken; if not, *ret is as it was */
bool net_watch_cause(struct net_watch *w, struct net_abort *ret);

/* Send to a rank of the job why it broke, by a watch that is opened for it if need be: for one that
 * would see a connection end in the middle of something. Only in a broken job. Does not wait;
 * net_watch_settle() waits until it and all others were notified, for a short time. */
void net_watch_warn(struct net_watch *w, uint32_t rank);
void net_watch_settle(struct net_watch *w);

/* Ask a rank of the job whether it is in the library: a rank that waits there answers, and is not
 * the one to be blamed for a wait that exceeds its time (straggler.h). From then on this rank
 * watches it. */
void net_watch_ask(struct net_watch *w, uint32_t rank);
/* Ask the ranks that this one watches on the node of a rank whether that has left: if one of them
 * waits in the library, net_watch_of() has its answer soon. */
void net_watch_ask_about(struct net_watch *w, uint32_t rank);
/* What is known of a rank of the job; nothing of one that this rank does not watch. */
struct net_watch_of {
    uint64_t heard_ms; /* when it answered last, by co_now_ms(); 0: never */
    bool has_left;     /* it sent goodbye, or has left as a rank of its node answered */
} net_watch_of(struct net_watch *w, uint32_t rank);

/* Wait for news of why the job broke: other ranks may know more about a rank that is gone.
 * returns   whether it came within NET_WATCH_WAIT_MS */
#define NET_WATCH_WAIT_MS 500
bool net_watch_wait(struct net_watch *w);

/* What to poll() for to hear the news early; writes net_watch_poll_most() at most. Not of those who
 * ask, and were asked: a rank that waits looks at them often enough. */
size_t net_watch_poll(struct net_watch *w, struct pollfd *ret);
size_t net_watch_poll_most(const struct net_watch *w);

#endif
