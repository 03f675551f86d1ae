/* The links of sim_relay.c: frames on their way, and relays with a fault in them. */
#include "relay_world.h"

#include <string.h>

/* --- faults in the relay --- */

void link_answer_early(struct world *w, struct client *c)
{
    struct link *l = &w->links[c->link];
    if (c->n_asked != 1 || w->history.operations[c->asked[0]].kind != HISTORY_GET)
        return;
    if (w->mutant == MUTANT_STALE_GET && l->seen >= 0 && draw(w, 2) == 0) {
        const struct history_operation *o = &w->history.operations[c->asked[0]];
        if (co_buf_len(&c->to_send) == 1 + 8 + 3 && o->begin == w->step) { /* no byte was pushed */
            co_buf_consume(&c->to_send, co_buf_len(&c->to_send));
            ask_end_operations(w, c, 1, l->seen);
        }
    }
}

/* The first DATA for a client is held until its next one was delivered. */
static void reorder(struct link *l, const struct relay_record *m, struct relay_frame *to)
{
    struct relay_record held;
    const uint8_t *at = l->held.bytes;
    relay_wire_put(to, m);
    if (relay_wire_next(RELAY_STORE, &at, l->held.bytes + l->held.len, &held, NULL) <= 0 ||
        held.client != m->client)
        return;
    relay_wire_put(to, &held);
    l->held.len = 0;
}

static void spoil(struct world *w, struct link *l, enum relay_end from, struct relay_frame *f)
{
    static struct relay_frame to;
    const uint8_t *at = f->bytes;
    struct relay_record m;
    to.len = 0;
    while (relay_wire_next(from, &at, f->bytes + f->len, &m, NULL) > 0 &&
           relay_wire_space(&to) > 2 * (int64_t)m.number) {
        const bool is_reply = m.kind == RELAY_DATA && from == RELAY_STORE;
        if (w->mutant == MUTANT_LOSE_CLOSE && from == RELAY_NODE && m.kind == RELAY_CLOSE)
            continue;
        if (w->mutant == MUTANT_NO_ASK && m.kind == RELAY_ASK) {
            struct relay_frame quiet = {.len = 0};
            m.kind = RELAY_QUIET;
            relay_wire_put(&quiet, &m);
            relay_store_take(l->store, quiet.bytes, quiet.len, w->now_ms, NULL);
            continue;
        }
        if (w->mutant == MUTANT_SWAP && is_reply && draw(w, 8) == 0)
            m.client = m.client > 0 ? m.client - 1 : 1;
        if (w->mutant == MUTANT_REORDER && is_reply && l->held.len == 0 && draw(w, 8) == 0)
            relay_wire_put(&l->held, &m);
        else if (w->mutant == MUTANT_REORDER && is_reply)
            reorder(l, &m, &to);
        else
            relay_wire_put(&to, &m);
        if (w->mutant == MUTANT_TWICE && from == RELAY_NODE && m.kind == RELAY_DATA &&
            draw(w, 8) == 0)
            relay_wire_put(&to, &m);
    }
    *f = to;
}

/* --- links --- */

void link_open(struct world *w, struct link *l)
{
    struct co_error err;
    const struct relay_node_limits limits = {.max_clients = N_CLIENTS * 4,
                                             .window_bytes = w->host.window_bytes,
                                             .max_bytes = draw(w, 2) == 0 ? 3000 : 1 << 20};
    memset(l, 0, sizeof *l);
    l->seen = -1;
    must(w, relay_node_create(&limits, &l->node, &err), &err);
    must(w, relay_store_create(&w->host, NULL, &l->store, &err), &err);
}

void link_lose(struct world *w, struct link *l)
{
    for (int i = 0; i < N_CLIENTS; i++)
        if (w->clients[i].is_up && &w->links[w->clients[i].link] == l)
            client_gone(&w->clients[i]);
    relay_node_destroy(l->node);
    relay_store_destroy(l->store);
}

static struct frame *way_add(struct world *w, struct way *v)
{
    if (v->n == MAX_FRAMES || (!w->is_over && draw(w, 3) == 0))
        return NULL;
    struct frame *f = &v->frames[(v->first + v->n) % MAX_FRAMES];
    const uint64_t at_ms = w->now_ms + draw(w, !w->is_over && draw(w, 20) == 0 ? 200 : 4);
    f->at_ms = v->last_ms > at_ms ? v->last_ms : at_ms; /* none overtakes another */
    return f;
}

static void way_sent(struct way *v, const struct frame *f)
{
    if (f->bytes.len == 0)
        return;
    v->last_ms = f->at_ms;
    v->n++;
    totals.n_frames++;
}

/* One frame, in pieces that each are whole records. */
static void deliver(struct world *w, struct link *l, enum relay_end from, struct relay_frame *f)
{
    struct co_error err;
    if (w->mutant != MUTANT_NONE)
        spoil(w, l, from, f);
    const uint8_t *begin = f->bytes, *at = f->bytes, *end = f->bytes + f->len;
    struct relay_record m;
    while (begin < end) {
        int rc = 1;
        do
            rc = relay_wire_next(from, &at, end, &m, &err);
        while (rc > 0 && draw(w, 4) != 0);
        if (from == RELAY_STORE)
            must(w, relay_node_take(l->node, begin, (size_t)(at - begin), &err), &err);
        else
            must(w, relay_store_take(l->store, begin, (size_t)(at - begin), w->now_ms, &err), &err);
        begin = at;
    }
    for (struct relay_client *c; (c = relay_node_next_due(l->node)) != NULL;)
        check(w, ((struct client *)relay_client_user(c))->is_up, "a client that is gone is due");
}

static void way_deliver(struct world *w, struct link *l, struct way *v, enum relay_end from)
{
    while (v->n > 0 && v->frames[v->first].at_ms <= w->now_ms) {
        struct relay_frame *f = &v->frames[v->first].bytes;
        v->first = (v->first + 1) % MAX_FRAMES;
        v->n--;
        deliver(w, l, from, f);
    }
}

void link_run(struct world *w, struct link *l)
{
    struct frame *f = way_add(w, &l->up);
    if (f != NULL) {
        relay_node_put(l->node, &f->bytes);
        way_sent(&l->up, f);
    }
    f = way_add(w, &l->down);
    if (f != NULL) {
        relay_store_put(l->store, &f->bytes);
        way_sent(&l->down, f);
    }
    way_deliver(w, l, &l->up, RELAY_NODE);
    way_deliver(w, l, &l->down, RELAY_STORE);
    check(w, relay_node_n_bytes(l->node) <= 2 << 20, "the node end holds too much");
}
