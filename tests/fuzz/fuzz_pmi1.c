/* fuzz_pmi1.c - any bytes as what ranks send by PMI-1, or as what another node has put. Answers are
 * lines of limited length; barriers count right.
 *
 * The first byte: from 2 on, the rest is what another node has put. Else the rest is pieces for
 * ranks 0 and 1, selected by the low bit of the byte before each piece; a piece ends after a
 * newline. */
#include "common/buf.h"
#include "fuzz.h"
#include "rendezvous/pmi/pmi1_server.h"

#include <string.h>

enum { N = 2 };

static void check_answers(struct pmi1_server *s, int rank)
{
    struct co_buf *out = pmi1_server_out(s, rank);
    const size_t n = co_buf_len(out);
    require(n <= PMI1_MAX_OUT_BYTES);
    require(n == 0 || co_buf_bytes(out)[n - 1] == '\n');
    require(n == 0 || memcmp(co_buf_bytes(out), "cmd=", 4) == 0);
    if (n > PMI1_MAX_OUT_BYTES / 2)
        co_buf_consume(out, n);
}

static void talk(struct pmi1_server *s, const uint8_t *data, size_t size)
{
    bool is_open[N] = {true, true};
    while (size > 1) {
        const int rank = data[0] & 1;
        const uint8_t *end = memchr(data + 1, '\n', size - 1);
        const size_t n = end != NULL ? (size_t)(end - data) : size - 1;
        if (is_open[rank])
            is_open[rank] = pmi1_server_feed(s, rank, data + 1, n, NULL) == 0;
        check_answers(s, rank);
        if (pmi1_server_is_gathered(s)) {
            require(pmi1_server_get_rank(s, 0)->in_barrier &&
                    pmi1_server_get_rank(s, 1)->in_barrier);
            require(pmi1_server_release(s) == 0);
            require(!pmi1_server_is_gathered(s));
        }
        data += 1 + n;
        size -= 1 + n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct pmi1_place place = {
        .n_local = N, .world_size = 2 * N, .n_nodes = 2, .name = "job", .seed = 1};
    struct pmi1_server *s;
    struct co_buf puts = {0};
    if (size == 0)
        return 0;
    require(pmi1_server_create(&place, &s, NULL) == 0);
    if (data[0] >= 2)
        pmi1_server_learn(s, data + 1, size - 1, NULL);
    else
        talk(s, data + 1, size - 1);
    require(pmi1_server_take_puts(s, &puts) == 0); /* what one node takes another one understands */
    require(pmi1_server_learn(s, co_buf_bytes(&puts), co_buf_len(&puts), NULL) == 0);
    co_buf_fini(&puts);
    pmi1_server_destroy(s);
    return 0;
}
