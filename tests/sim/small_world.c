#include "small_world.h"

#include "common/clock.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* --- Beginning and end --- */

struct message_hello world_hello(const struct world *w, int node)
{
    static const char *const names[N_NODES] = {"node0", "node1", "node2"};
    struct message_hello hello = {.run_id = "sim",
                                  .name = names[node],
                                  .node_rank = MESSAGE_NO_RANK,
                                  .n_local = (uint32_t)node + 1,
                                  .resumes = MESSAGE_NO_GENERATION,
                                  .stop_ms = 500,
                                  .terms = w->roster->terms,
                                  .checks = w->config->checks,
                                  .check_ms = w->config->checks ? 500 : 0};
    hello.instance[0] = (uint8_t)(node + 1);
    return hello;
}

void world_init(struct world *w, const struct config *c)
{
    struct message_terms terms = {.min_nodes = c->min_nodes,
                                  .max_nodes = c->max_nodes,
                                  .window_ms = 500,
                                  .start_timeout_ms = 20000,
                                  .rejoin_timeout_ms = 10000,
                                  .max_restarts = c->max_restarts,
                                  .admit_at = c->admit_at};
    struct roster_limits limits = {.keep_alive_ms = 1000,
                                   .lease_ms = 2000,
                                   .margin_ms = 500,
                                   .return_ms = 500,
                                   .ready_ms = 1000,
                                   .slack_ms = 500};
    if (!c->leases) { /* longer than anything else */
        limits.keep_alive_ms = NO_LEASE_MS;
        limits.lease_ms = 2 * (uint64_t)NO_LEASE_MS;
    }
    if (c->budget[MOVE] > 0) {
        limits.confirm_ms = limits.verdict_ms = NO_LEASE_MS;
        limits.absent_ms = 2500;
    }
    *w = (struct world){.config = c,
                        .now_ms = 1,
                        .inherited = MESSAGE_NO_GENERATION,
                        .told = MESSAGE_NO_GENERATION,
                        .past_code = -1,
                        .being_code = -1,
                        .phase = RECORD_CONFIRMED};
    memcpy(w->budget, c->budget, sizeof w->budget);
    for (int i = 0; i < N_NODES; i++) {
        w->nodes[i].link = -1;
        w->nodes[i].n_ranks = (uint32_t)i + 1;
        w->nodes[i].sealed_in = MESSAGE_NO_GENERATION;
    }
    w->version = world_new_version();
    if (roster_create(&limits, &terms, NULL, 0, w->now_ms, &w->roster, NULL) < 0)
        abort();
}

void world_fini(struct world *w)
{
    for (int i = 0; i < N_NODES; i++)
        member_destroy(w->nodes[i].member);
    roster_destroy(w->roster);
    *w = (struct world){0};
}

/* --- Copies: what the pointers of the two machines point into is copied along. What they lend to
 * their caller, their orders, is not: it has been carried out. --- */

uint64_t world_new_version(void)
{
    static uint64_t newest;
    return ++newest;
}

/* An array of n items, which are not set; the one before is freed. */
static void new_array(void *at, size_t n, size_t item_bytes)
{
    free(*(void **)at);
    *(void **)at = malloc(n * item_bytes + 1);
    if (*(void **)at == NULL)
        abort();
}

static void copy_items(void *to, const void *from, size_t n, size_t item_bytes)
{
    if (n > 0)
        memcpy(to, from, n * item_bytes);
}

static void copy_index(struct roster_index *to, struct roster_index old,
                       const struct roster_index *from)
{
    if (old.n_cells != from->n_cells)
        new_array(&old.cells, from->n_cells, sizeof *old.cells);
    copy_items(old.cells, from->cells, from->n_cells, sizeof *old.cells);
    *to = *from;
    to->cells = old.cells;
}

static void copy_roster(struct roster *to, const struct roster *from)
{
    struct roster old = *to;
    if (old.cap_slots != from->cap_slots) {
        new_array(&old.nodes, from->cap_slots, sizeof *old.nodes);
        new_array(&old.free_slots, from->cap_slots, sizeof *old.free_slots);
        new_array(&old.seats, from->cap_slots, sizeof *old.seats);
        new_array(&old.entries, from->cap_slots, sizeof *old.entries);
    }
    if (old.cap_addresses != from->cap_addresses)
        new_array(&old.addresses, from->cap_addresses, sizeof *old.addresses);
    *to = *from;
    to->nodes = old.nodes;
    to->free_slots = old.free_slots;
    to->seats = old.seats;
    to->entries = old.entries;
    to->addresses = old.addresses;
    to->actions = old.actions;
    to->n_actions = 0;
    to->cap_actions = old.cap_actions;
    copy_items(to->nodes, from->nodes, from->n_slots, sizeof *to->nodes);
    copy_items(to->free_slots, from->free_slots, from->n_free, sizeof *to->free_slots);
    copy_items(to->seats, from->seats, from->n_seats, sizeof *to->seats);
    copy_items(to->addresses, from->addresses, from->n_addresses, sizeof *to->addresses);
    copy_index(&to->by_link, old.by_link, &from->by_link);
    copy_index(&to->by_instance, old.by_instance, &from->by_instance);
    copy_index(&to->by_node_rank, old.by_node_rank, &from->by_node_rank);
    to->budget.rules.no_restart_on = to->final_codes;
    to->verdict.node = to->verdict_node;
    to->verdict.text = to->verdict_text;
}

static void copy_member(struct member **to_at, const struct member *from)
{
    if (from == NULL) {
        member_destroy(*to_at);
        *to_at = NULL;
        return;
    }
    struct member *to = *to_at != NULL ? *to_at : calloc(1, sizeof *to);
    if (to == NULL)
        abort();
    memcpy(to, from, offsetof(struct member, messages));
    to->hello.run_id = to->run_id;
    to->hello.name = to->name;
    to->hello.domain = to->domain;
    to->hello.addresses = to->own_addresses;
    to->place.place.host = to->host;
    to->failed.text = to->failed_text;
    to->end.node = to->end_node;
    to->end.text = to->end_text;
    to->addresses = NULL;
    to->n_addresses = to->cap_addresses = 0;
    to->is_over_full = from->is_over_full;
    *to_at = to;
}

static void copy_node(struct node *to, const struct node *from)
{
    struct member *member = to->member;
    const bool is_same = member != NULL && from->member != NULL && to->version == from->version;
    memcpy(to, from, offsetof(struct node, links));
    to->member = member;
    if (!is_same)
        copy_member(&to->member, from->member);
    for (int i = 0; i < MAX_LINKS; i++) {
        const struct link *l = &from->links[i];
        to->links[i].id = l->id;
        for (int k = 0; k < 2; k++) {
            to->links[i].has_end[k] = l->has_end[k];
            to->links[i].queues[k].n = l->queues[k].n;
            copy_items(to->links[i].queues[k].mails, l->queues[k].mails, (size_t)l->queues[k].n,
                       sizeof *l->queues[k].mails);
        }
    }
}

void world_copy(struct world *to, const struct world *from)
{
    struct roster *roster = to->roster != NULL ? to->roster : calloc(1, sizeof *roster);
    const bool is_same = to->roster != NULL && to->version == from->version;
    if (roster == NULL)
        abort();
    memcpy(to, from, offsetof(struct world, nodes));
    to->roster = roster;
    if (!is_same)
        copy_roster(to->roster, from->roster);
    for (int i = 0; i < N_NODES; i++)
        copy_node(&to->nodes[i], &from->nodes[i]);
    if (from->config->budget[MOVE] > 0) {
        to->past = from->past;
        to->being_written = from->being_written;
    }
}

enum { OLD_MS = 4000 };

/* --- Digests: all that decides what can follow, and nothing else --- */

struct digest {
    uint64_t hash;
    const struct world *w;
};

static void put(struct digest *d, uint64_t word)
{
    d->hash = (d->hash ^ word) * 0x9e3779b97f4a7c15u;
    d->hash ^= d->hash >> 29;
    d->hash *= 0xbf58476d1ce4e5b9u;
    d->hash ^= d->hash >> 32;
}

/* What is past is past. */
static void put_time(struct digest *d, uint64_t at_ms)
{
    put(d, at_ms == CO_NEVER_MS ? CO_NEVER_MS : at_ms > d->w->now_ms ? at_ms - d->w->now_ms : 0);
}

/* What is older than any lease is just old. */
static void put_age(struct digest *d, uint64_t since_ms)
{
    uint64_t age_ms = d->w->now_ms - since_ms;
    put(d, !d->w->config->leases ? 0 : age_ms < OLD_MS ? age_ms : OLD_MS);
}

static void put_generation(struct digest *d, uint32_t generation)
{
    put(d, generation == MESSAGE_NO_GENERATION ? MESSAGE_NO_GENERATION
                                               : generation - roster_generation(d->w->roster));
}

static void put_port(struct digest *d, uint16_t port)
{
    put(d, port == 0 ? 0 : 1 + (uint64_t)(d->w->n_ports - port));
}

/* Links are distinguished by their age, not by their numbers. */
static uint64_t link_name(const struct node *n, uint64_t id)
{
    uint64_t n_newer = 0;
    if (id == 0)
        return 0;
    for (int i = 0; i < MAX_LINKS; i++)
        n_newer += n->links[i].id > id;
    return 1 + n_newer;
}

static void put_mail(struct digest *d, const struct mail *m)
{
    put(d, m->type | (uint64_t)m->why << 8 | (uint64_t)m->code << 16 | (uint64_t)m->flag << 24);
    put_generation(d, m->generation);
    for (int i = 0; i < 5; i++)
        if (m->type == MESSAGE_HELLO && i < 2)
            put_generation(d, m->numbers[i]);
        else
            put(d, m->numbers[i]);
    put_port(d, m->port);
    put_age(d, m->sent_ms == 0 ? d->w->now_ms : m->sent_ms);
}

static void put_links(struct digest *d, const struct node *n)
{
    for (uint64_t name = 1; name <= MAX_LINKS; name++) {
        for (int i = 0; i < MAX_LINKS; i++) {
            const struct link *l = &n->links[i];
            if (l->id == 0 || link_name(n, l->id) != name)
                continue;
            put(d, 0x11 + l->has_end[0] + 2 * l->has_end[1]);
            for (int to = 0; to < 2; to++) {
                put(d, (uint64_t)l->queues[to].n);
                for (int k = 0; k < l->queues[to].n; k++)
                    put_mail(d, &l->queues[to].mails[k]);
            }
        }
    }
    put(d, n->link < 0 ? 0 : link_name(n, n->links[n->link].id));
}

static void put_member(struct digest *d, const struct member *m)
{
    put(d, m->state);
    put(d, m->is_connecting | m->is_linked << 1 | m->is_welcome << 2 | m->holds << 3 |
               m->kills << 4 | m->parks << 8 | m->was_lost << 5 | m->lease_is_off << 6 |
               m->knows_end << 7);
    put_time(d, m->connect_at_ms);
    put(d, m->n_attempts);
    put_time(d, m->state == MEMBER_JOINING ? m->late_at_ms : CO_NEVER_MS);
    put_generation(d, m->place.generation);
    put_generation(d, m->stopped);
    put(d, m->place.place.first_rank | (uint64_t)m->place.place.world_size << 32);
    put(d, m->place.place.leads | m->place.place.n_local << 1 | (uint64_t)m->hello.n_local << 32);
    put_port(d, m->place.place.port);
    for (uint32_t i = 0; i < m->n_reports; i++)
        put(d, m->reports[i]);
    put(d, m->knows_end ? (uint64_t)m->end.exit_code : 256);
    put(d, m->health);
    if (!d->w->config->leases)
        return;
    put_age(d, m->lease.from_ms);
    put_age(d, m->lease.last_sent_ms);
    put_age(d, m->heard_ms);
    put_time(d, m->spawner_lease_ms);
    put(d, m->lease.keep_alive_ms);
}

static void put_node(struct digest *d, const struct node *n)
{
    put(d, n->was_started | n->is_gone << 1 | n->is_silent << 2 | n->is_connecting << 3 |
               n->opens << 4 | n->runs << 5 | n->stops << 7 | n->breaks << 8 | n->yields << 9 |
               n->fails << 10 | n->ended_by_roster << 11 | n->parks << 12 | n->has_met << 13 |
               n->is_broken << 14 | n->recovers << 16 | n->is_fit << 17);
    put(d, n->n_steps | n->n_ranks << 8 | (uint64_t)n->n_late << 32 | (uint64_t)n->all_late << 40);
    put(d, n->stops && n->recovers && n->may_park);
    for (int i = 0; i < N_NODES; i++)
        put(d, d->w->nodes[i].history == n->history);
    if (d->w->config->budget[MOVE] > 0)
        put_generation(d, n->sealed_in);
    put(d, (uint64_t)n->exit_code);
    put_generation(d, n->runs ? n->generation : MESSAGE_NO_GENERATION);
    put(d, n->reset_ms != 0);
    put_links(d, n);
    if (n->member != NULL)
        put_member(d, n->member);
}

/* That of an absent one is not known. */
static int owner_of(const struct roster_node *n)
{
    return n->absent ? N_NODES + n->seat : n->name[4] - '0'; /* "nodeN" */
}

static void put_roster_node(struct digest *d, const struct roster_node *n)
{
    put(d, (uint64_t)owner_of(n) + 100);
    put(d, n->absent ? 0 : link_name(&d->w->nodes[owner_of(n)], n->link));
    put(d, n->part | (uint64_t)n->done << 8 | (uint64_t)n->saved << 9 | (uint64_t)n->leaves << 10 |
               (uint64_t)n->condemned << 11 | (uint64_t)n->in << 12 | (uint64_t)n->health << 20);
    put(d, (uint32_t)n->seat | (uint64_t)n->first_rank << 32);
    put(d, n->n_local | (uint64_t)n->n_next << 32);
    if (d->w->config->budget[MOVE] > 0) {
        put_generation(d, n->known.generation);
        put(d, n->known.n_nodes | (uint64_t)n->known.index << 32);
    }
    if (n->in == LIST_AWAY)
        put_time(d, n->since_ms + d->w->roster->limits.return_ms);
    else if (n->in == LIST_ABSENT)
        put_time(d, n->since_ms + d->w->roster->limits.absent_ms);
    else
        put_age(d, n->since_ms);
}

static const struct roster_node *find_known(const struct roster *r, int i)
{
    for (uint32_t slot = 0; slot < r->n_slots; slot++)
        if (r->nodes[slot].used && owner_of(&r->nodes[slot]) == i)
            return &r->nodes[slot];
    return NULL;
}

static void put_roster(struct digest *d, const struct roster *r)
{
    put(d, r->state);
    put_time(d, r->deadline_ms);
    put_time(d, r->state == ROSTER_OPEN ? r->gather_deadline_ms : CO_NEVER_MS);
    put_time(d, r->state == ROSTER_STOPPING ? r->pause_until_ms : CO_NEVER_MS);
    put_time(d, r->n_unchecked > 0 ? r->unchecked_until_ms : CO_NEVER_MS);
    put(d, roster_generation(r) == MESSAGE_NO_GENERATION);
    put(d, r->ready | r->pending << 1 | r->is_ending << 2);
    put_port(d, r->ready ? r->port : 0);
    put(d, r->n_members | (uint64_t)r->n_seats << 32);
    put(d, r->cause.why | r->cause.for_good << 8 | r->cause.charged << 9 |
               r->cause.consequence << 10 | r->cause.recovers << 11);
    put(d, r->cause.node == ROSTER_NO_SLOT ? 9 : (uint64_t)owner_of(&r->nodes[r->cause.node]));
    put(d, r->leader == ROSTER_NO_SLOT ? 9 : (uint64_t)owner_of(&r->nodes[r->leader]));
    put(d, r->budget.n_restarts | (uint64_t)r->budget.n_counted << 32);
    put(d, r->state == ROSTER_CLOSED ? r->verdict.exit_code : 256);
    for (int i = 0; i < 2 * N_NODES; i++) { /* the absent ones too */
        const struct roster_node *known = find_known(r, i);
        if (known != NULL)
            put_roster_node(d, known);
        for (int other = 0; other < i; other++) {
            const struct roster_node *o = find_known(r, other);
            put(d, known != NULL && o != NULL && known->arrival < o->arrival);
        }
    }
    for (uint32_t i = 0; i < r->n_seats; i++)
        put(d, r->seats[i].key);
}

static void put_before(struct digest *d, const struct roster_before *b)
{
    put_generation(d, b->generation);
    put(d, b->n_nodes | (uint64_t)b->n_missing << 32);
    for (uint32_t i = 0; i < b->n_missing; i++)
        put(d, b->missing[i]);
}

/* All that a takeover depends on. */
static void put_past(struct digest *d, const struct world *w)
{
    const struct roster *r = w->roster;
    put(d, w->has_past | w->phase << 1 | r->confirmed << 3 | r->join_waits << 4);
    put_generation(d, w->has_past ? w->past.generation : MESSAGE_NO_GENERATION);
    put(d, w->past.n_nodes | (uint64_t)w->past.world_size << 32);
    put(d, w->past.n_restarts);
    put_before(d, &w->past.before);
    put_before(d, &r->before);
    put_generation(d, w->inherited);
    put_generation(d, w->told);
    put(d, (uint64_t)(w->past_code + 1) | (uint64_t)(w->being_code + 1) << 16 |
               (uint64_t)r->has_informed_all << 32);
}

uint64_t world_digest(const struct world *w)
{
    struct digest d = {.hash = 1, .w = w};
    uint32_t generation = roster_generation(w->roster);
    put_roster(&d, w->roster);
    for (int i = 0; i < N_NODES; i++)
        put_node(&d, &w->nodes[i]);
    for (int i = 0; i < N_FAULTS; i++)
        put(&d, (uint64_t)w->budget[i]);
    if (generation != MESSAGE_NO_GENERATION) {
        put_port(&d, w->ports[generation]);
        put(&d, w->own_failure[generation]);
        put(&d, w->n_steps[generation]);
    }
    if (w->config->budget[MOVE] > 0)
        put_past(&d, w);
    return d.hash;
}

/* --- Messages and mails --- */

/* Only where another roster may take over does it matter what a node was. */
static void pack_was(const struct world *w, const struct message_was *was, struct mail *p)
{
    const struct message_place *at = &was->place;
    p->numbers[1] = MESSAGE_NO_GENERATION;
    if (w->config->budget[MOVE] == 0 || !was->is_known)
        return;
    p->numbers[1] = was->generation;
    p->numbers[3] = at->n_nodes | at->node_index << 8 | at->world_size << 16;
    p->numbers[4] = at->first_rank | at->n_local << 8 | (uint32_t)at->leads << 16;
    p->port = at->port;
}

static struct message_was unpack_was(const struct mail *p)
{
    return (struct message_was){.is_known = p->numbers[1] != MESSAGE_NO_GENERATION,
                                .generation = p->numbers[1],
                                .place = {.n_nodes = p->numbers[3] & 255,
                                          .node_index = p->numbers[3] >> 8 & 255,
                                          .world_size = p->numbers[3] >> 16,
                                          .first_rank = p->numbers[4] & 255,
                                          .n_local = p->numbers[4] >> 8 & 255,
                                          .leads = (p->numbers[4] >> 16 & 1) != 0,
                                          .agent_store = p->port != 0,
                                          .host = p->port != 0 ? "host" : "",
                                          .port = p->port}};
}

struct mail mail_pack(const struct world *w, const struct message *m)
{
    struct mail p = {.type = (uint8_t)m->type, .generation = m->generation};
    switch (m->type) {
    case MESSAGE_HELLO:
        p.numbers[0] = m->hello.resumes;
        p.numbers[2] = m->hello.n_local;
        pack_was(w, &m->hello.was, &p);
        p.sent_ms = m->hello.sent_ms;
        break;
    case MESSAGE_KEEP_ALIVE:
        p.sent_ms = m->keep_alive.sent_ms;
        break;
    case MESSAGE_LEASE:
        p.sent_ms = m->lease.sent_ms;
        break;
    case MESSAGE_WELCOME:
        p.sent_ms = m->welcome.sent_ms;
        p.flag = m->welcome.resumed;
        break;
    case MESSAGE_REFUSED:
        p.why = (uint8_t)m->refused.why;
        p.flag = m->refused.again;
        break;
    case MESSAGE_SEALED:
        p.numbers[0] = m->sealed.n_nodes;
        p.numbers[1] = m->sealed.node_index;
        p.numbers[2] = m->sealed.world_size;
        p.numbers[3] = m->sealed.first_rank;
        p.numbers[4] = m->sealed.n_local;
        p.flag = m->sealed.leads;
        p.port = m->sealed.port;
        break;
    case MESSAGE_READY:
        p.port = m->ready.port;
        break;
    case MESSAGE_FAILED:
        p.numbers[0] = m->failed.rank;
        p.code = m->failed.exit_code;
        p.flag = m->failed.final;
        p.why = m->failed.consequence | m->failed.recovers << 1;
        break;
    case MESSAGE_STOPPED:
        p.numbers[0] = m->stopped.n_local;
        break;
    case MESSAGE_HEALTH:
        p.why = (uint8_t)m->health.fitness;
        break;
    case MESSAGE_STOP:
        p.why = (uint8_t)m->stop.why;
        break;
    case MESSAGE_VERDICT:
        p.why = (uint8_t)m->verdict.outcome;
        p.code = m->verdict.exit_code;
        break;
    default:
        break;
    }
    return p;
}

struct message mail_unpack(const struct world *w, int node, const struct mail *p)
{
    struct message m = {.type = (enum message_type)p->type, .generation = p->generation};
    const struct roster_limits *limits = &w->roster->limits;
    switch (m.type) {
    case MESSAGE_HELLO:
        m.hello = world_hello(w, node);
        m.hello.resumes = p->numbers[0];
        m.hello.n_local = p->numbers[2];
        m.hello.was = unpack_was(p);
        m.hello.sent_ms = p->sent_ms;
        break;
    case MESSAGE_KEEP_ALIVE:
        m.keep_alive.sent_ms = p->sent_ms;
        break;
    case MESSAGE_LEASE:
        m.lease.sent_ms = p->sent_ms;
        break;
    case MESSAGE_WELCOME:
        m.welcome = (struct message_welcome){p->sent_ms, limits->keep_alive_ms, limits->lease_ms,
                                             p->flag, ""};
        break;
    case MESSAGE_REFUSED:
        m.refused = (struct message_refused){(enum message_refusal)p->why, p->flag, ""};
        break;
    case MESSAGE_SEALED:
        m.sealed = (struct message_place){.n_nodes = p->numbers[0],
                                          .node_index = p->numbers[1],
                                          .world_size = p->numbers[2],
                                          .first_rank = p->numbers[3],
                                          .n_local = p->numbers[4],
                                          .leads = p->flag,
                                          .host = "",
                                          .port = p->port};
        break;
    case MESSAGE_READY:
        m.ready = (struct message_ready){"host", p->port, true};
        break;
    case MESSAGE_FAILED:
        m.failed = (struct message_failed){.rank = p->numbers[0],
                                           .exit_code = p->code,
                                           .final = p->flag,
                                           .text = "",
                                           .consequence = (p->why & 1) != 0,
                                           .recovers = (p->why & 2) != 0};
        break;
    case MESSAGE_STOPPED:
        m.stopped.n_local = p->numbers[0];
        break;
    case MESSAGE_HEALTH: /* of a node: it is the only one whose end cares */
        m.health = (struct message_health){(enum message_fitness)p->why, "",
                                           p->why == MESSAGE_UNFIT ? "sick" : ""};
        break;
    case MESSAGE_STOP:
        m.stop = (struct message_stop){(enum message_why)p->why, ""};
        break;
    case MESSAGE_VERDICT:
        m.verdict = (struct message_verdict){(enum message_outcome)p->why, p->code, MESSAGE_NO_RANK,
                                             "", ""};
        break;
    case MESSAGE_LEAVE:
        m.leave.text = "";
        break;
    default:
        break;
    }
    return m;
}
