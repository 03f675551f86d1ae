/* check_stream.h - sending and receiving on a connection of check_net.h, at either end, waiting no
 * longer than it may. */
#ifndef DDP_CTL_PROBE_CHECK_STREAM_H
#define DDP_CTL_PROBE_CHECK_STREAM_H

#include <stddef.h>
#include <stdint.h>

enum { CHECK_CHUNK_BYTES = 256 << 10 };

/* From now on nothing waits longer than this, and nothing is held back to be sent with more. */
void check_stream_be_patient(int fd, uint64_t ms);

/* All of it. The other end may let a byte through now and then without end: after end_ms the call
 * fails when the next byte moves, or when nothing does.
 *
 * returns 0; -EAGAIN nothing moved in time; -ETIMEDOUT; -EPIPE the other end is gone; -errno */
int check_stream_send(int fd, const void *bytes, size_t n, uint64_t end_ms);
int check_stream_receive(int fd, void *bytes, size_t n, uint64_t end_ms);

/* Send for so long, as fast as it goes. chunk: CHECK_CHUNK_BYTES of anything. returns as above;
 * end_ms is for the last chunk */
int check_stream_pour(int fd, const uint8_t *chunk, uint64_t ms, uint64_t end_ms);

/* Read to the end, or up to end_ms, since the other end may never end.
 * chunk: CHECK_CHUNK_BYTES, overwritten. returns as above; -ETIMEDOUT: more came even then */
int check_stream_drain(int fd, uint8_t *chunk, uint64_t end_ms, uint64_t *ret_bytes);

#endif
