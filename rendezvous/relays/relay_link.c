#include "relay_link.h"

#include "rendezvous/channel/seal.h"
#include "rendezvous/store/wire.h"

#include <string.h>

bool relay_link_claims(const uint8_t *bytes, size_t len)
{
    return seal_greeting_version(bytes, len) == RELAY_LINK_VERSION;
}

size_t relay_link_hello(uint32_t generation, const char *run_id,
                        uint8_t hello[RELAY_LINK_HELLO_BYTES])
{
    const size_t len = strnlen(run_id, MESSAGE_RUN_ID_BYTES);
    wire_put_u32(hello, RELAY_LINK_WINDOW_BYTES);
    wire_put_u32(hello + 4, generation);
    memcpy(hello + 8, run_id, len);
    return 8 + len;
}
