/* node_socket.h - the messages by which ranks of a node get each other's memory.
 *
 * Each rank owns one user segment: a sparse memfd, alive as long as the rank, in which ddp_alloc()
 * and the gradient buckets live. The node's broker (in ddprun; in local rank 0 where ddprun is
 * missing) keeps a copy of each descriptor and of the control segment's, and hands them out over a
 * SOCK_SEQPACKET socket per rank. One message is one packet, fixed size, host byte order, at most
 * one descriptor:
 *
 *     rank -> broker   HELLO  local_rank, bytes + its user segment    first, once
 *     broker -> rank   CONTROL                  + the control segment  answers HELLO
 *     rank -> broker   FETCH  local_rank                               one at a time
 *     broker -> rank   SEGMENT local_rank, bytes + that rank's segment once that rank has joined
 *     rank -> broker   STEP   local_rank        a step of training is complete; no answer
 *     rank -> broker   LOST   local_rank        a call failed since a peer was lost; no answer
 *     rank -> broker   WAIT   local_rank, text  a path to another node does not work; no answer
 *     broker -> rank   TAKE   local_rank, place.rank, text   to a standby: the place that it takes;
 *                                                      the standby sends nothing before it
 *     broker -> rank   REFUSED code + text                             and the socket is closed
 *
 * Each message has the generation that it is about. A rank whose generation broke sends HELLO
 * again, with the number of the next one (docs/design/recovery.md): the broker answers once that
 * generation exists, with the newest, or sends REFUSED if none follows. A receiver drops messages
 * of older generations. A rank's first HELLO has generation 0, and is answered with the newest. A
 * CONTROL with the flag NODE_PLACED has the rank's place in that generation, which replaces the one
 * in the rank's environment, and the address of the generation's store. In messages about itself a
 * rank always uses the local rank that it had at its start; FETCH and SEGMENT name the ranks of the
 * generation.
 *
 * STEP is for ranks without peers, which never send HELLO and have no control segment to count in;
 * one is enough. LOST is sent once in a generation, at any time: if the rank then fails because of
 * it, that failure follows from another rank's, and is not the root cause of the job's; and the
 * process that reaps the ranks may check which one is dying. WAIT has a text for people: what the
 * rank cannot reach; without a text the rank can reach it again, or the wait is over. A FETCH waits
 * until the rank that it asks for has sent HELLO, or is answered with REFUSED if that rank died. */
#ifndef DDP_SEGMENTS_NODE_SOCKET_H
#define DDP_SEGMENTS_NODE_SOCKET_H

#include <stdint.h>

struct co_error;

#define NODE_SOCKET_VERSION  5
#define NODE_SOCKET_MAGIC    0x53504444u /* "DDPS" */
#define NODE_SOCKET_TEXT_MAX 256

enum node_message_type {
    NODE_HELLO = 1,
    NODE_CONTROL,
    NODE_FETCH,
    NODE_SEGMENT,
    NODE_REFUSED,
    NODE_STEP,
    NODE_LOST,
    NODE_TAKE,
    NODE_WAIT
};

enum node_flag {
    NODE_RECOVERS = 1, /* HELLO: this rank outlives the death of others; CONTROL: another generation
                          may follow in which it can continue */
    NODE_PLACED = 2    /* CONTROL: `place` and `text` count */
};

struct node_place {      /* of a rank in a generation */
    uint32_t rank;       /* in the world; local_rank and n_local are in the message */
    uint32_t world_size; /* more than rank */
    uint32_t node_rank;  /* this node's number */
    uint32_t n_nodes;    /* more than node_rank */
    uint32_t port;       /* of the store, which is at `text`; 0: the generation has no store */
};

struct node_message {
    uint32_t magic;
    uint16_t version;
    uint16_t type;       /* enum node_message_type */
    uint32_t local_rank; /* HELLO, STEP, LOST, WAIT: of the sender; CONTROL, TAKE: of the receiver;
                            FETCH, SEGMENT: of the segment's owner */
    uint32_t n_local;    /* HELLO: how many I expect; CONTROL: how many there are */
    uint64_t bytes;      /* of the segment that travels along */
    int32_t code;        /* REFUSED: negative errno */
    uint32_t generation; /* HELLO: at least this one */
    uint32_t flags;      /* enum node_flag */
    struct node_place place;         /* CONTROL: with NODE_PLACED */
    char text[NODE_SOCKET_TEXT_MAX]; /* ended by NUL. REFUSED: why; CONTROL: with NODE_PLACED, the
                                        store's host; WAIT: for what; TAKE: the rank's
                                        TORCHELASTIC_ERROR_FILE, "" if it is longer */
};

/* Send a message, with fd unless it is -1 (the caller keeps its own copy).
 * returns   0, -EAGAIN (non-blocking socket, queue full), -EPIPE, -errno */
int node_message_send(int sock, const struct node_message *m, int fd);

/* Send FETCH, STEP or LOST, of which only these fields count. returns as node_message_send() */
int node_message_notify(int sock, enum node_message_type type, unsigned local_rank,
                        uint32_t generation);

/* Send WAIT.
 *
 * text      cut to NODE_SOCKET_TEXT_MAX - 1 bytes; "": the rank does not wait any more
 * returns   as node_message_send() */
int node_message_tell_wait(int sock, unsigned local_rank, uint32_t generation, const char *text);

/* Receive one; blocks or not as the socket does. Checks size, magic, version, type, text.
 *
 * ret_fd    the descriptor that came along, close-on-exec, owned by the caller; -1 if none
 * returns   1 a message; 0 the other end closed; -EAGAIN; -EPROTO (the text has the reason);
 *           -errno */
int node_message_receive(int sock, struct node_message *ret, int *ret_fd, struct co_error *err);

#endif
