/* node_socket.h - how the ranks of a node get each other's memory.
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
 *     broker -> rank   SEGMENT local_rank, bytes + that rank's segment when that rank has come
 *     rank -> broker   STEP   local_rank        a step of training is complete; no answer
 *     rank -> broker   LOST   local_rank        a call failed since a peer was lost; no answer
 *     rank -> broker   WAIT   local_rank, text  a path to another node does not work; no answer
 *     broker -> rank   TAKE   local_rank, place.rank   to a standby: who it is from now on; before
 *                                                      it says anything
 *     broker -> rank   REFUSED code + text                             and the socket is closed
 *
 * Each message has the generation that it is about. A rank whose generation broke says HELLO again,
 * with the number of the next one (docs/design/recovery.md): it is answered once there is such a
 * one, with the newest, or REFUSED if none follows. Messages of older generations are dropped by
 * whom they reach. A rank's first HELLO has 0, and is answered with the newest. A CONTROL of which
 * the flag NODE_PLACED says so tells the rank its place in that generation, which is not what its
 * environment says, and where the generation's store is. What a rank says of itself is always what
 * it was at its start; FETCH and SEGMENT name the ranks of the generation.
 *
 * STEP is for ranks without peers, which never say HELLO and have no control segment to count
 * in; one is enough. LOST is said once in a generation, at any time: what the rank ends with, if it
 * ends of it, is the consequence of another one's end, and not the cause of the job's; and whoever
 * reaps the ranks may look who is dying. WAIT says in words what the rank cannot reach, for people
 * to read; without a text it can again, or the wait is over. A FETCH waits until the rank it asks
 * for has said HELLO, or is answered REFUSED when it died. */
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
                       may follow in which it can go on */
    NODE_PLACED = 2    /* CONTROL: `place` and `text` count */
};

struct node_place {      /* of a rank in a generation */
    uint32_t rank;       /* in the world; local_rank and n_local stand in the message */
    uint32_t world_size; /* more than rank */
    uint32_t node_rank;  /* this node's number */
    uint32_t n_nodes;    /* more than node_rank */
    uint32_t port;       /* of the store, which is at `text`; 0: there is none */
};

struct node_message {
    uint32_t magic;
    uint16_t version;
    uint16_t type;       /* enum node_message_type */
    uint32_t local_rank; /* HELLO, STEP, LOST, WAIT: who I am; CONTROL, TAKE: who you are; FETCH,
                                        SEGMENT: whose */
    uint32_t n_local;    /* HELLO: how many I expect; CONTROL: how many there are */
    uint64_t bytes;      /* of the segment that travels along */
    int32_t code;        /* REFUSED: negative errno */
    uint32_t generation; /* HELLO: at least this one */
    uint32_t flags;      /* enum node_flag */
    struct node_place place;         /* CONTROL: with NODE_PLACED */
    char text[NODE_SOCKET_TEXT_MAX]; /* ended by NUL. REFUSED: why; CONTROL: with NODE_PLACED, the
                                        store's host; WAIT: for what */
};

/* Send a message, with fd unless it is -1 (the caller keeps its own copy).
 * returns   0, -EAGAIN (non-blocking socket, queue full), -EPIPE, -errno */
int node_message_send(int sock, const struct node_message *m, int fd);

/* Send FETCH, STEP or LOST, of which only these fields count. returns as node_message_send() */
int node_message_notify(int sock, enum node_message_type type, unsigned local_rank,
                        uint32_t generation);

/* Send WAIT.
 *
 * text      cut to NODE_SOCKET_TEXT_MAX - 1 bytes; "": there is nothing more to tell
 * returns   as node_message_send() */
int node_message_tell_wait(int sock, unsigned local_rank, uint32_t generation, const char *text);

/* Receive one; blocks or not as the socket does. Checks size, magic, version, type, text.
 *
 * ret_fd    the descriptor that came along, close-on-exec, owned by the caller; -1 if none
 * returns   1 a message; 0 the other end closed; -EAGAIN; -EPROTO (the text says why); -errno */
int node_message_receive(int sock, struct node_message *ret, int *ret_fd, struct co_error *err);

#endif
