/* protocol.h - which protocol will a connection speak? One port serves several, and the first bytes
 * tell.
 *
 * Pure. A store's client begins with an opcode, which is a small number; HTTP with the name of a
 * method in capitals; a supervisor's control connection with PROTOCOL_CONTROL_PREFACE. */
#ifndef DDP_RENDEZVOUS_SERVER_PROTOCOL_H
#define DDP_RENDEZVOUS_SERVER_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

enum protocol {
    PROTOCOL_UNDECIDED, /* more bytes are needed */
    PROTOCOL_STORE,     /* also what is none of the others: the store says what is wrong with it */
    PROTOCOL_HTTP,
    PROTOCOL_CONTROL,
};

#define PROTOCOL_CONTROL_PREFACE "DDP1"

/* bytes   all that came so far; at most the first four are looked at */
enum protocol protocol_of(const uint8_t *bytes, size_t len);

#endif
