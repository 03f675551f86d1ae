/* fuzz_ballot.c - one ballot of the quorum. One that is accepted has the same bytes when it is
 * written again, and a council that is asked it answers with one that can be written, too. */
#include "common/buf.h"
#include "common/error.h"
#include "fuzz.h"
#include "rendezvous/quorum/ballot_wire.h"
#include "rendezvous/quorum/council.h"

#include <string.h>

/* Process 1 of job 7, which coordinates. */
static void take(const struct ballot *b)
{
    static const struct elector_address own = {.host = "node1", .port = 29400};
    static struct council c;
    struct council_orders orders;
    struct ballot answer = {0};
    struct ballot_voter to[QUORUM_MAX_ASKED];
    struct co_buf out = {0};
    struct co_error err = {0};
    council_init(&c, &council_usual_limits, 1, &own, true);
    council_found(&c, 7, 1000, &orders);
    for (int i = 0; i < 3; i++) {
        council_take(&c, b, 1000 + 700 * (uint64_t)i, &answer, &orders);
        council_time(&c, 1300 + 700 * (uint64_t)i, &orders);
        require(council_asked(&c, to) <= QUORUM_MAX_ASKED);
        require(council_offers(&c, to) <= COUNCIL_MAX_OFFERS);
        if (b->type != BALLOT_VOTE)
            require(ballot_wire_encode(&answer, "job", &out, &err) == 0);
        council_record(&c, &answer);
        require(ballot_wire_encode(&answer, "job", &out, &err) == 0);
    }
    co_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ballot b;
    char run_id[BALLOT_WIRE_RUN_ID_BYTES];
    struct co_error err = {0};
    struct co_buf out = {0};
    if (ballot_wire_decode(data, size, &b, run_id, &err) < 0) {
        require(err.text[0] != '\0');
        return 0;
    }
    require(ballot_wire_encode(&b, run_id, &out, &err) == 0);
    require(co_buf_len(&out) == size && memcmp(co_buf_bytes(&out), data, size) == 0);
    co_buf_fini(&out);
    take(&b);
    return 0;
}
