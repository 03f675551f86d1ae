/* fuzz_records.c - what arrives on an encrypted connection. The first byte selects how the input is
 * cut into pieces that arrive, the second how large the pieces are that it is read into. With bit 7
 * of the first byte, the input is what the other side sends, sealed: it must arrive as it is. Else
 * it is anything: nothing of it may open, and memory is bounded. */
#include "fuzz.h"
#include "worker-runtime/cipher/records.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t key[CIPHER_KEY_BYTES] = "a key of thirty-two bytes .....";

/* returns how many bytes have opened */
static size_t read_all(const uint8_t *wire, size_t n_wire, uint8_t how, uint8_t size, uint8_t *got,
                       size_t n_most)
{
    struct records_in in = {0};
    struct cipher *of_maker, *of_other;
    size_t at = 0, n_got = 0;
    ssize_t n;
    require(cipher_create(CIPHER_CHACHA, key, &of_maker) == 0);
    require(cipher_create(CIPHER_CHACHA, key, &of_other) == 0);
    do {
        uint8_t into[512];
        const struct iovec v[2] = {{into, 1 + size}, {into + 256, 1 + size}};
        n = records_open(&in, of_maker, of_other, v, 2);
        require(n != 0 && n <= 2 * (1 + size));
        for (ssize_t i = 0; i < n; i++) {
            require(n_got < n_most);
            got[n_got++] = into[i <= size ? i : i - 1 - size + 256];
        }
        if (n == -EAGAIN && at < n_wire) {
            struct iovec space;
            require(records_space(&in, &space) == 0);
            require(in.room <= 2 * RECORDS_MOST_BYTES && space.iov_len > 0);
            size_t some = 1 + (how & 0x7f) * 37u;
            some = some < n_wire - at ? some : n_wire - at;
            some = some < space.iov_len ? some : space.iov_len;
            memcpy(space.iov_base, wire + at, some);
            records_came(&in, some);
            at += some;
            n = 1;
        }
    } while (n > 0);
    cipher_destroy(of_maker);
    cipher_destroy(of_other);
    records_in_fini(&in);
    return n_got;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3 || cipher_suites() == 0)
        return 0;
    const uint8_t how = data[0], piece = data[1] & 0x7f;
    const size_t n = size - 2;
    uint8_t *got = malloc(n);
    if ((how & 0x80) == 0) {
        require(read_all(data + 2, n, how, piece, got, n) == 0);
        free(got);
        return 0;
    }
    struct records_out out = {0};
    struct cipher *seals;
    size_t sent = 0, n_wire = 0;
    uint8_t *wire = malloc(2 * n + 1024);
    require(cipher_create(CIPHER_CHACHA, key, &seals) == 0);
    while (sent < n) {
        const size_t first = (n - sent) / 3;
        const struct iovec v[2] = {{(uint8_t *)data + 2 + sent, first},
                                   {(uint8_t *)data + 2 + sent + first, n - sent - first}};
        require(records_seal(&out, seals, true, v, 2) == 0);
        const struct iovec rest = records_rest(&out);
        memcpy(wire + n_wire, rest.iov_base, rest.iov_len);
        n_wire += rest.iov_len;
        sent += records_went(&out, rest.iov_len);
    }
    require(read_all(wire, n_wire, how, piece, got, n) == n);
    require(memcmp(got, data + 2, n) == 0);
    cipher_destroy(seals);
    records_out_fini(&out);
    free(wire);
    free(got);
    return 0;
}
