/* Answers of etcd: the first byte selects the request, the second the status; the rest is the
 * answer. Whatever the answer, the result is within its bounds. */
#include "rendezvous/election/etcd_wire.h"

#include "common/error.h"
#include "fuzz.h"

#include <string.h>

static void check(const struct elector_answer *a)
{
    require(memchr(a->text, '\0', sizeof a->text) != NULL);
    if (a->failed)
        return;
    require(a->lease >= 0 && a->revision >= 0);
    if (a->has_leader)
        require(a->leader.port != 0 && a->leader.host[0] != '\0' &&
                memchr(a->leader.host, '\0', sizeof a->leader.host) != NULL);
    if (a->has_record)
        require(a->record.n_nodes > 0 && a->record.world_size >= a->record.n_nodes &&
                a->record.gone >= -1);
    if (a->has_record && a->record.host.at.port != 0)
        require(a->record.host.node < a->record.n_nodes && a->record.host.at.host[0] != '\0');
    for (int i = 0; a->has_record && i < a->record.before.n_missing; i++)
        require(i < ELECTOR_MISSING_MAX && a->record.before.missing[i] < a->record.before.n_nodes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int statuses[] = {200, 400, 401, 404, 503};
    struct etcd_wire_keys keys;
    struct elector_answer answer;
    struct co_error err;
    char token[ETCD_WIRE_TOKEN_BYTES];
    if (size < 2)
        return 0;
    const struct elector_request ask = {.type = (enum elector_request_type)(data[0] % 6)};
    int status = statuses[data[1] % 5];
    const char *text = (const char *)data + 2;
    require(etcd_wire_keys("/p", "job", &keys) == 0);
    etcd_wire_decode(&keys, &ask, status, text, size - 2, &answer);
    check(&answer);
    etcd_wire_wants_login(status, text, size - 2);
    if (etcd_wire_decode_login(status, text, size - 2, token, &err) == 0)
        require(memchr(token, '\n', strlen(token)) == NULL);
    return 0;
}
