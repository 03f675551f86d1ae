/* fuzz_seal.c - bytes for one end of a control channel.
 *
 * The first byte selects the end and whether it has a token. The end receives the rest as a whole
 * and byte by byte: with the same end, how bytes are cut changes neither the error nor how many
 * frames are accepted. An end that does not know the token gets no frame through. */
#include "common/buf.h"
#include "common/error.h"
#include "fuzz.h"
#include "rendezvous/channel/seal.h"

#include <string.h>

struct outcome {
    int rc;
    size_t n_frames, n_frame_bytes;
};

static struct seal *create(uint8_t choice, const struct seal_key *key)
{
    struct seal *s;
    bool has_token = (choice & 2) != 0;
    int rc = (choice & 1) != 0 ? seal_create_node(has_token ? key : NULL, 1, 2, &s, NULL)
                               : seal_create_roster(key, has_token, 1, 2, &s, NULL);
    require(rc == 0);
    return s;
}

static struct outcome feed(uint8_t choice, const struct seal_key *key, const uint8_t *data,
                           size_t size, size_t piece)
{
    struct seal *s = create(choice, key);
    struct outcome o = {0};
    size_t at = 0;
    for (size_t end = 0; end < size && o.rc >= 0;) {
        end = end + piece < size ? end + piece : size;
        do {
            const uint8_t *frame;
            size_t n_used, len;
            struct co_error err = {0};
            o.rc = seal_feed(s, data + at, end - at, &n_used, &frame, &len, &err);
            require(n_used <= end - at && (o.rc >= 0 || err.text[0] != '\0'));
            at += n_used;
            if (o.rc == SEAL_FRAME) {
                require(len > 0 && len <= SEAL_MAX_FRAME_BYTES);
                o.n_frames++;
                o.n_frame_bytes += len;
            }
        } while (o.rc > 0);
    }
    seal_destroy(s);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct seal_key key;
    if (size == 0)
        return 0;
    if (key.id[0] == 0)
        require(seal_key_init(&key, "0123456789abcdef0123456789abcdef", 32, NULL) == 0);
    struct outcome whole = feed(data[0], &key, data + 1, size - 1, size);
    struct outcome cut = feed(data[0], &key, data + 1, size - 1, 1);
    require(whole.rc == cut.rc && whole.n_frames == cut.n_frames &&
            whole.n_frame_bytes == cut.n_frame_bytes);
    require((data[0] & 2) == 0 || whole.n_frames == 0);
    return 0;
}
