/* sink.h - write to a descriptor that belongs to others too, without ever waiting for it.
 *
 * stderr is shared with our starter and with the workers: setting O_NONBLOCK on it would break
 * their writes. So a terminal or a pipe is opened once more, a socket is written with
 * MSG_DONTWAIT, and a file takes what it is given. */
#ifndef DDP_LAUNCHER_STDIO_SINK_H
#define DDP_LAUNCHER_STDIO_SINK_H

#include <stdbool.h>
#include <stddef.h>

enum sink_kind {
    SINK_FILE,   /* never waits for long */
    SINK_OWN,    /* opened once more, non-blocking */
    SINK_SOCKET, /* MSG_DONTWAIT */
    SINK_ASK,    /* could not be opened once more: asked before each small write */
    SINK_DEAD    /* nobody reads any more: everything is dropped */
};

struct sink {
    enum sink_kind kind;
    int fd; /* borrowed, or for SINK_OWN owned */
};

void sink_open(struct sink *s, int fd);
void sink_close(struct sink *s);

/* Write some of it.
 *
 * returns   how many bytes were taken (all of them once the sink is dead); 0: it is full */
size_t sink_write(struct sink *s, const char *bytes, size_t n);

#endif
