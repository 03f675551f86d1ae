/* stream_writer.h - write to a descriptor that belongs to others too, without ever waiting for it;
 * bytes that it does not take yet are kept.
 *
 * stderr is shared with our parent process and with the workers: setting O_NONBLOCK on it would
 * break their writes. So a terminal or a pipe is opened once more, a socket is written with
 * MSG_DONTWAIT, and a file takes what it is given.
 *
 * A caller checks first whether the writer is full, and keeps its bytes to itself while it is: so
 * that little waits here. Bytes that the caller cannot keep are taken anyway. */
#ifndef DDP_LAUNCHER_STDIO_STREAM_WRITER_H
#define DDP_LAUNCHER_STDIO_STREAM_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct stream_writer; /* opaque */

/* fd        borrowed; looked at with the first byte: a quiet job needs no writer
 * on_room   from the loop: what waited is out, the writer was full and is not any more
 * returns   NULL without memory */
struct stream_writer *stream_writer_create(uv_loop_t *loop, int fd, void (*on_room)(void *arg),
                                           void *arg);

/* Forget what waits. Frees w when the loop has closed its handle; NULL is fine. */
void stream_writer_close(struct stream_writer *w);

/* Does anything wait? */
bool stream_writer_is_full(const struct stream_writer *w);

/* Pass bytes on after those that wait. A sink that can't be waited for, or for which nothing can be
 * kept for want of memory, is abandoned: all bytes for it are discarded from then on. A sink
 * without a reader is also abandoned. After an error of a disk (ENOSPC, EDQUOT, EIO), up to 256 KiB
 * wait, and are tried again each second; the writer is not full meanwhile. More is lost, and the
 * line that it would have continued is ended. */
void stream_writer_write(struct stream_writer *w, const char *bytes, size_t n);

/* Nothing follows for now: what a disk still does not take is lost. */
void stream_writer_finish(struct stream_writer *w);

/* Why bytes could not be written the first time, -errno; 0: all were, except into a pipe or socket
 * without a reader, or a terminal that is closed. */
int stream_writer_error(const struct stream_writer *w);

/* The same for bytes that are lost. */
int stream_writer_loss(const struct stream_writer *w);

#endif
