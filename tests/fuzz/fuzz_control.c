/* fuzz_control.c - one message of the control channel. A message that is accepted has the same
 * bytes when it is written again: nothing is accepted in two forms, and nothing is lost. */
#include "common/buf.h"
#include "common/error.h"
#include "fuzz.h"
#include "rendezvous/channel/channel_wire.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct channel_wire_scratch scratch;
    struct message m;
    struct co_error err = {0};
    struct co_buf out = {0};
    if (channel_wire_decode(data, size, &scratch, &m, &err) < 0) {
        require(err.text[0] != '\0');
        return 0;
    }
    require(channel_wire_encode(&m, &out, &err) == 0);
    require(co_buf_len(&out) == size && memcmp(co_buf_bytes(&out), data, size) == 0);
    co_buf_fini(&out);
    return 0;
}
