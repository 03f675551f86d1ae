/* sim_relay - relay links between clients and a store, on virtual time.
 *
 * Both ends, the sessions and the store are the real ones. Links are slow, and frames
 * arrive whole but cut between records at random; clients send in pieces, read slowly, leave in the
 * middle of waits, of requests and of replies, and links are lost. Windows, shares of a turn and
 * high-water marks are small, so that each client is often late, choked and without credit.
 * Schedules are drawn from seeds. Checked are:
 *   - a private client, which has names of its own, receives the bytes that a session without a
 *     relay answers to it
 *   - what shared clients are answered is linearizable (relay_history.h)
 *   - neither end exceeds its bounds, and nothing is left of clients that are gone
 *   - when the faults end, each client gets all it is owed
 * Relays with a fault in them (enum mutant) must be found to break this. */
#include "relay_world.h"

#include <string.h>

static struct world world;
struct totals totals;

/* --- clients --- */

static void client_come(struct world *w, int i)
{
    struct client *c = &w->clients[i];
    struct co_error err;
    *c = (struct client){.is_shared = i < N_CLIENTS / 2,
                         .is_up = true,
                         .link = (int)draw(w, (uint64_t)w->n_links),
                         .id = ++w->n_incarnations};
    if (!c->is_shared)
        c->dialect = (enum dialect)draw(w, 3);
    must(w, relay_node_open(w->links[c->link].node, c, &c->relay, &err), &err);
    ask_hello(c, &c->to_send);
    if (c->is_shared)
        return;
    session_init(&c->reference, &w->direct);
    ask_reference(c, &c->to_send);
}

void client_gone(struct client *c)
{
    if (!c->is_up)
        return;
    c->is_up = false;
    co_buf_fini(&c->to_send);
    co_buf_fini(&c->received);
    if (!c->is_shared)
        session_fini(&c->reference);
}

static void client_leave(struct world *w, struct client *c)
{
    totals.n_left++;
    if (draw(w, 2) == 0 && !c->has_left) { /* half, and reads what it is owed */
        c->has_left = c->waits = true;
        co_buf_consume(&c->to_send, co_buf_len(&c->to_send));
        relay_client_leave(c->relay);
    } else {
        relay_client_release(c->relay);
        client_gone(c);
    }
}

static void client_send(struct world *w, struct client *c)
{
    size_t n = co_buf_len(&c->to_send);
    const size_t space = relay_client_space(c->relay);
    n = n < space ? n : space;
    if (n == 0 || (c->dialect != DIALECT_B && !w->is_over && draw(w, 3) == 0))
        return;
    n = 1 + (size_t)draw(w, draw(w, 2) == 0 ? n : n < 12 ? n : 12);
    check(w, relay_client_push(c->relay, co_buf_bytes(&c->to_send), n) == 0,
          "the node refused bytes for which it had space");
    co_buf_consume(&c->to_send, n);
}

static void client_read(struct world *w, struct client *c)
{
    const struct co_buf *replies = relay_client_replies(c->relay);
    size_t n = co_buf_len(replies);
    if (n > 0 && (w->is_over || draw(w, 4) == 0)) {
        n = w->is_over ? n : 1 + (size_t)draw(w, n);
        co_buf_append(&c->received, co_buf_bytes(replies), n);
        relay_client_sent(c->relay, n);
        if (c->is_shared)
            ask_read_shared(w, c);
        else
            ask_read_private(w, c);
    }
    const char *text;
    if (co_buf_len(relay_client_replies(c->relay)) == 0 && relay_client_is_ended(c->relay, &text)) {
        totals.n_ended += text[0] != '\0';
        relay_client_release(c->relay);
        client_gone(c);
    }
}

/* What the shell around the node end does: 50 ms of silence, and nothing unread. */
static void client_be_quiet(struct world *w, struct client *c)
{
    const bool is_unread = co_buf_len(&c->to_send) > 0;
    if (!relay_client_is_asked(c->relay) || is_unread) {
        c->asked_ms = 0;
        return;
    }
    if (c->asked_ms == 0)
        c->asked_ms = w->now_ms;
    if (w->now_ms >= c->asked_ms + QUIET_MS)
        relay_client_quiet(c->relay);
}
/* --- a schedule --- */

static void make_store(struct world *w, struct session_host *h, bool is_tight)
{
    const struct store_limits limits = {.max_bytes = 64 << 20, .max_names = 100000};
    struct co_error err;
    *h = (struct session_host){
        .limits = {.max_key_bytes = 64,
                   .max_value_bytes = 1 << 20,
                   .max_keys = 16,
                   .max_request_bytes = 1 << 22},
        .high_water_bytes = is_tight ? 1 + (size_t)draw(w, 5000) : SIZE_MAX,
        .max_reply_bytes = 4 << 20,
        .max_work = is_tight ? 1 + draw(w, 10) : UINT64_MAX,
        .on_output = w->direct.on_output,
    };
    must(w, store_create(&limits, 1, session_on_wake, NULL, &h->store, &err), &err);
}

static void on_reference_output(struct session *s)
{
    (void)s;
}

static void world_init(struct world *w, uint64_t seed, enum mutant mutant)
{
    memset(w, 0, offsetof(struct world, caught));
    w->seed = seed;
    w->mutant = mutant;
    w->chance = chance_from(seed);
    for (int i = 0; i < 8; i++)
        draw(w, 2);
    w->direct.on_output = on_reference_output;
    make_store(w, &w->direct, false);
    w->direct.on_output = on_reference_output;
    make_store(w, &w->host.sessions, true);
    w->host.max_clients = 1000;
    w->host.window_bytes = 2 + (uint32_t)draw(w, draw(w, 2) == 0 ? 64 : 8192);
    w->host.max_buffer_bytes = MAX_BUFFER_BYTES;
    w->host.mid_request_ms = END_MS;
    relay_host_init(&w->host);
    w->n_links = 1 + (int)draw(w, MAX_LINKS);
    for (int i = 0; i < w->n_links; i++)
        link_open(w, &w->links[i]);
    for (int i = 0; i < N_CLIENTS; i++)
        client_come(w, i);
}

static void client_run(struct world *w, int i)
{
    struct client *c = &w->clients[i];
    if (!c->is_up) {
        if (!w->is_over && draw(w, 40) == 0)
            client_come(w, i);
        return;
    }
    if (!w->is_over && draw(w, 6) == 0) {
        if (c->is_shared)
            ask_shared(w, c);
        else
            ask_private(w, c);
        link_answer_early(w, c);
    }
    client_send(w, c);
    client_be_quiet(w, c);
    client_read(w, c);
    if (c->is_up && !w->is_over && draw(w, 300) == 0)
        client_leave(w, c);
}

static void lose_a_link(struct world *w)
{
    struct link *l = &w->links[draw(w, (uint64_t)w->n_links)];
    totals.n_links_lost++;
    link_lose(w, l);
    link_open(w, l);
}

/* It has all it is owed, except for a wait that no client ends. */
static bool is_served(const struct world *w, const struct client *c)
{
    if (!c->is_up)
        return true;
    if (co_buf_len(&c->to_send) > 0 || c->has_left)
        return false;
    if (!c->is_shared)
        return co_buf_len(&c->reference.out) == 0;
    for (int i = 0; i < c->n_asked; i++) {
        const enum history_kind kind = w->history.operations[c->asked[i]].kind;
        if (ask_has_answer(kind) && kind != HISTORY_WAIT)
            return false;
    }
    return true;
}

static bool is_quiescent(const struct world *w)
{
    bool is_served_all = true;
    for (int i = 0; i < N_CLIENTS; i++)
        is_served_all &= is_served(w, &w->clients[i]);
    return is_served_all;
}

static bool has_places(const struct world *w)
{
    uint32_t n = w->host.n_clients;
    for (int i = 0; i < w->n_links; i++)
        n += relay_node_n_clients(w->links[i].node);
    return n > 0;
}

static void world_step(struct world *w)
{
    for (int i = 0; i < N_CLIENTS; i++) {
        w->step++;
        client_run(w, i);
    }
    for (int i = 0; i < w->n_links; i++) {
        w->step++;
        link_run(w, &w->links[i]);
    }
    if (!TAILQ_EMPTY(&w->host.late) && (w->is_over || draw(w, 2) == 0)) {
        totals.n_late++;
        relay_host_run_late(&w->host, w->now_ms);
    }
    relay_host_expire(&w->host, w->now_ms);
    check(w, w->host.n_buffer_bytes <= MAX_BUFFER_BYTES, "the store end holds too much");
}

static void run_until(struct world *w, bool (*is_done)(const struct world *w), const char *what)
{
    while (!is_done(w)) {
        check(w, w->now_ms++ < END_MS, what);
        world_step(w);
    }
}

static bool no_places(const struct world *w)
{
    return !has_places(w);
}

static void delete_key(void *arg, struct wire_bytes key)
{
    struct co_buf *b = arg;
    ask_put_string(b, (const char *)key.at, key.len);
}

/* Without keys and queues, a store that no client waits for is as small as it began. */
static void check_store(struct world *w, struct store *s, uint64_t n_empty_bytes)
{
    struct co_buf keys = {0};
    char name[32];
    store_each_key(s, delete_key, &keys);
    const uint8_t *at = co_buf_bytes(&keys);
    while (at != NULL && at < co_buf_bytes(&keys) + co_buf_len(&keys))
        store_delete(s, codec_item_take(&at));
    co_buf_fini(&keys);
    for (uint32_t id = 0; id <= w->n_incarnations; id++)
        for (int i = 0; i < N_OWN_NAMES; i++) {
            int len = snprintf(name, sizeof name, id == 0 ? "queue" : "%" PRIu32 "/%d", id, i);
            const struct wire_bytes queue = {(const uint8_t *)name, (size_t)len};
            while (store_queue_len(s, queue) > 0)
                store_queue_drop(s, queue);
        }
    check(w, store_n_bytes(s) == n_empty_bytes, "something is left of clients that are gone");
}

static void run_one(struct world *w)
{
    const uint64_t n_empty_bytes = store_n_bytes(w->host.sessions.store);
    for (; w->now_ms < FAULTS_END_MS; w->now_ms++) {
        if (draw(w, 800) == 0)
            lose_a_link(w);
        world_step(w);
    }
    w->is_over = true;
    run_until(w, is_quiescent, "a client did not get what it is owed");
    for (int i = 0; i < N_NAMES; i++) {
        const enum history_answer answer = history_search(&w->history, i);
        check(w, answer != HISTORY_HAS_NONE, "no order explains the answers");
        totals.n_too_long += answer == HISTORY_TOO_LONG;
        totals.n_histories++;
    }
    for (int i = 0; i < N_CLIENTS; i++)
        if (w->clients[i].is_up) {
            relay_client_release(w->clients[i].relay);
            client_gone(&w->clients[i]);
        }
    run_until(w, no_places, "the place of a client that is gone is taken");
    check(w, w->host.n_buffer_bytes == 0, "buffers are left of clients that are gone");
    check_store(w, w->host.sessions.store, n_empty_bytes);
}

static void world_end(struct world *w)
{
    for (int i = 0; i < N_CLIENTS; i++)
        client_gone(&w->clients[i]);
    for (int i = 0; i < w->n_links; i++) {
        relay_node_destroy(w->links[i].node);
        relay_store_destroy(w->links[i].store);
    }
    store_destroy(w->host.sessions.store);
    store_destroy(w->direct.store);
}

static void run(uint64_t seed)
{
    world_init(&world, seed, MUTANT_NONE);
    run_one(&world);
    world_end(&world);
}

/* returns   the seed that has shown the fault, of so many; 0: none has */
static uint64_t catch_mutant(enum mutant mutant, uint64_t n)
{
    struct world *w = &world;
    for (volatile uint64_t seed = 1; seed <= n; seed++) {
        if (setjmp(w->caught) != 0) {
            world_end(w);
            return seed;
        }
        world_init(w, seed, mutant);
        run_one(w);
        world_end(w);
    }
    return 0;
}

int main(void)
{
    static const char *const names[N_MUTANTS] = {
        [MUTANT_STALE_GET] = "stale get",     [MUTANT_REORDER] = "reordered replies",
        [MUTANT_SWAP] = "swapped replies",    [MUTANT_TWICE] = "repeated requests",
        [MUTANT_LOSE_CLOSE] = "a lost CLOSE", [MUTANT_NO_ASK] = "no ASK",
    };
    const uint64_t n = schedules_run(1000, run);
    if (n == 0)
        return 0;
    printf("%" PRIu64 " schedules, seeds 1 to %" PRIu64 ": %" PRIu64
           " operations in histories, %" PRIu64 " bytes compared, %" PRIu64 " frames, %" PRIu64
           " clients left, %" PRIu64 " were ended, %" PRIu64 " links lost, %" PRIu64
           " turns with late clients, %" PRIu64 " of %" PRIu64 " histories too long\n",
           n, n, totals.n_operations, totals.n_compared_bytes, totals.n_frames, totals.n_left,
           totals.n_ended, totals.n_links_lost, totals.n_late, totals.n_too_long,
           totals.n_histories);
    if (totals.n_too_long > totals.n_histories / 20) {
        fprintf(stderr, "%" PRIu64 " of %" PRIu64 " histories were too long to be searched\n",
                totals.n_too_long, totals.n_histories);
        return 1;
    }
    for (int i = 1; i < N_MUTANTS; i++) {
        const uint64_t seed = catch_mutant((enum mutant)i, 300);
        if (seed == 0) {
            fprintf(stderr, "a relay with %s was not found\n", names[i]);
            return 1;
        }
        printf("a relay with %s was found by seed %" PRIu64 "\n", names[i], seed);
    }
    return 0;
}
