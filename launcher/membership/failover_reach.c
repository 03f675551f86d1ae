/* failover_reach.c - which processes this one has reached, and which it cannot reach.
 *
 * A packet filter that rejects a connection looks like a process that has ended: a refusal counts
 * only where a coordinator has answered before. A node whose listener is not reached has no vote;
 * the coordinator reports that once, as the job then ends with it as if there was no failover. */
#include "failover_link_priv.h"

#include "launcher/job/job_spec.h"

#include "common/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

enum { MAX_NAMED = 3 };

/* --- what all files need --- */

void failover_note(struct failover_link *l, enum co_severity severity, const char *format, ...)
{
    char line[FAILOVER_TEXT_BYTES];
    va_list args;
    if (l->closing || l->callbacks.on_note == NULL)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    l->callbacks.on_note(l->callbacks.arg, severity, line);
}

void failover_on_note(void *arg, enum co_severity severity, const char *text)
{
    failover_note(arg, severity, "%s", text);
}

void failover_on_refused(void *arg, const char *text)
{
    failover_note(arg, CO_WARNING, "%s", text);
}

static struct elector_address address_of(const char *host, uint16_t port)
{
    struct elector_address at = {.port = port};
    snprintf(at.host, sizeof at.host, "%s", host);
    return at;
}

struct elector_address failover_endpoint(const struct failover_link *l)
{
    return address_of(l->world->endpoint_host, l->world->endpoint_port);
}

struct elector_address failover_also(const struct failover_link *l, uint32_t i)
{
    return address_of(l->world->also[i].host, l->world->also[i].port);
}

/* It also takes ballots there. */
struct elector_address failover_coordinator(const struct failover_link *l)
{
    return l->is_moved && l->remote != NULL ? l->leader : failover_endpoint(l);
}

bool failover_is_endpoint(const struct failover_link *l, const struct elector_address *at)
{
    const struct elector_address endpoint = failover_endpoint(l);
    return elector_same_address(at, &endpoint);
}

/* --- reached, or not --- */

void failover_note_reached(struct failover_link *l, const struct elector_address *from,
                           const struct ballot *b)
{
    const struct ballot_entry *e = &b->entry;
    struct failover_reached *r = NULL;
    const struct elector_address *own = NULL;
    struct elector_address at;
    for (uint32_t i = 0; b->has_entry && b->from == e->record.term.owner && i < e->n; i++)
        if (e->voters[i].id == b->from)
            own = &e->voters[i].at;
    if (own == NULL || failover_find_reached(l, own) != NULL ||
        ballot_links_find_peer(l->ballots, from, &at) < 0)
        return;
    r = &l->reached[l->reached_turn++ % FAILOVER_REACHED];
    *r = (struct failover_reached){.own = *own, .at = at};
}

const struct elector_address *failover_find_reached(const struct failover_link *l,
                                                    const struct elector_address *own)
{
    for (uint32_t i = 0; i < FAILOVER_REACHED; i++)
        if (own->port != 0 && elector_same_address(&l->reached[i].own, own))
            return &l->reached[i].at;
    return NULL;
}

static bool is_also(const struct failover_link *l, uint32_t i, const struct elector_address *at)
{
    const struct elector_address also = failover_also(l, i);
    return elector_same_address(&also, at);
}

/* It knows no coordinator, or does not run. */
void failover_note_also(struct failover_link *l, const struct elector_address *at)
{
    for (uint32_t i = 0; l->asks_also && i < l->world->n_also; i++)
        if (!l->has_also_answered[i] && is_also(l, i, at)) {
            l->has_also_answered[i] = true;
            l->n_also_left--;
        }
}

void failover_on_lost(void *arg, const struct elector_address *at, int code, const char *text)
{
    struct failover_link *l = arg;
    failover_note_also(l, at);
    l->is_foreign |= code == -EPROTO && failover_is_endpoint(l, at);
    snprintf(l->lost_text, sizeof l->lost_text, "%s", text);
}

/* "10.0.0.2 port 29400, 10.0.0.3 port 29400, and 2 more" */
static void print_unreached(const struct ballot_voter *nodes, uint32_t n, char *text, size_t size)
{
    size_t len = 0;
    for (uint32_t i = 0; i < n && i < MAX_NAMED && len < size; i++)
        len += (size_t)snprintf(text + len, size - len, "%s%.60s port %u", i > 0 ? ", " : "",
                                nodes[i].at.host, nodes[i].at.port);
    if (n > MAX_NAMED && len < size)
        snprintf(text + len, size - len, ", and %u more", n - MAX_NAMED);
}

void failover_check_reach(struct failover_link *l)
{
    struct ballot_voter nodes[COUNCIL_MAX_OFFERS];
    char text[512];
    if (l->has_reported_unreached || l->roster == NULL || l->council.id == 0)
        return;
    const uint32_t n = council_unreached(&l->council, co_now_ms(), nodes);
    if (n == 0)
        return;
    l->has_reported_unreached = true;
    print_unreached(nodes, n, text, sizeof text);
    const bool is_alone = l->council.proposer.newest.voters.n < 2;
    failover_note(l, CO_NOTE,
                  "this node cannot reach %s: %.200s; %s; allow connections between all nodes at "
                  "that port, or set --local-addr",
                  text, l->lost_text,
                  is_alone ? "so no other node can replace the coordinator, and the job ends if "
                             "this node is lost"
                           : "such a node has no vote on the next coordinator");
}
