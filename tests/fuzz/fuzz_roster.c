/* fuzz_roster.c - nodes that send any message at any time. Each message is well-formed.
 *
 * A node that has the token may still be wrong, or old, or hostile. Whatever such nodes send, the
 * roster stays consistent, and sends on open links only, and only what its wire can carry. The
 * ranks that it assigns are dense.
 *
 * The input: the terms, then turns; bytes that are missing are 0. */
#include "common/buf.h"
#include "common/clock.h"
#include "common/error.h"
#include "fuzz.h"
#include "rendezvous/channel/channel_wire.h"
#include "rendezvous/membership/roster_priv.h"

#include <string.h>

enum { MAX_LINKS = 8, MAX_NAMES = 6, MAX_DOMAINS = 3 };

static const char *const names[MAX_NAMES] = {"node1", "node2", "node10", "a", "z", "node1"};
static const char *const domains[MAX_DOMAINS] = {"d1", "d2", "d3"};
static const char *const texts[] = {"", "a reason", "with \xc3\xbc and \"quotes\""};
static const struct message_address addresses[] = {{4, {10, 0, 0, 1}}, {6, {0xfd, [15] = 1}}};

struct world {
    const uint8_t *at, *end;
    struct roster *roster;
    struct message_terms terms;
    uint64_t now_ms;
    uint64_t links[MAX_LINKS]; /* 0: none */
    uint64_t n_links;
    struct co_buf frame;
    struct channel_wire_scratch scratch;
};

static uint8_t draw(struct world *w, uint8_t n)
{
    uint8_t byte = w->at < w->end ? *w->at++ : 0;
    return n == 0 ? byte : byte % n;
}

static uint32_t draw_generation(struct world *w)
{
    uint32_t newest = roster_generation(w->roster);
    uint8_t choice = draw(w, 4);
    return choice == 0 ? MESSAGE_NO_GENERATION : choice == 1 ? draw(w, 4) : newest;
}

static const char *draw_text(struct world *w)
{
    return texts[draw(w, sizeof texts / sizeof *texts)];
}

/* --- what a node sends --- */

static struct message_hello draw_hello(struct world *w)
{
    struct message_hello h = {.instance = {draw(w, MAX_LINKS)},
                              .run_id = "job",
                              .name = names[draw(w, MAX_NAMES)],
                              .node_rank = (int32_t)draw(w, 5) - 1,
                              .n_local = 1u + draw(w, 3),
                              .keeps_rank_0 = draw(w, 8) == 1,
                              .stop_ms = draw(w, 0) * 10u,
                              .n_addresses = draw(w, 3),
                              .addresses = addresses,
                              .terms = w->terms};
    h.resumes = draw(w, 2) == 0 ? MESSAGE_NO_GENERATION : draw_generation(w);
    h.terms.max_nodes += draw(w, 8) == 1;
    h.returns = draw(w, 4) == 1;
    h.was.is_known = draw(w, 4) == 1;
    if (h.was.is_known) {
        h.was.generation = draw(w, 2) == 0 ? MESSAGE_MAX_GENERATION : draw(w, 4);
        h.was.place = (struct message_place){.n_nodes = 1u + draw(w, 4),
                                             .n_local = 1u + draw(w, 3),
                                             .n_restarts = draw(w, 4),
                                             .leads = draw(w, 2),
                                             .host = "10.0.0.1",
                                             .port = 1u + draw(w, 2)};
        h.was.place.node_index = draw(w, (uint8_t)h.was.place.n_nodes);
        h.was.place.first_rank = draw(w, 9);
        h.was.place.world_size = h.was.place.first_rank + h.was.place.n_local + draw(w, 4);
    }
    h.checks = draw(w, 2) == 1;
    if (h.terms.segment > 0)
        h.domain = domains[draw(w, MAX_DOMAINS)];
    return h;
}

static const struct message_progress progress = {.wait = MESSAGE_WAIT_NODES};

/* A message of any type, including those that only a roster sends. */
static struct message draw_message(struct world *w)
{
    struct message m = {.type = (enum message_type)draw(w, MESSAGE_N_TYPES),
                        .generation = draw_generation(w)};
    if (m.type == MESSAGE_HELLO)
        m.hello = draw_hello(w);
    else if (m.type == MESSAGE_READY)
        m.ready = (struct message_ready){"10.0.0.1", draw(w, 0), draw(w, 2)};
    else if (m.type == MESSAGE_FAILED)
        m.failed = (struct message_failed){draw(w, 9), (uint8_t)(1 + draw(w, 255)),
                                           draw(w, 2), draw_text(w),
                                           draw(w, 2), draw(w, 2),
                                           draw(w, 2)};
    else if (m.type == MESSAGE_STOPPED)
        m.stopped.n_local = draw(w, 5); /* 0 is refused */
    else if (m.type == MESSAGE_LEAVE)
        m.leave.text = draw_text(w);
    else if (m.type == MESSAGE_END || m.type == MESSAGE_VERDICT)
        m.verdict = (struct message_verdict){MESSAGE_ENDED, draw(w, 0), MESSAGE_NO_RANK,
                                             names[draw(w, MAX_NAMES)], draw_text(w)};
    else if (m.type == MESSAGE_LEASE)
        m.lease.progress = draw(w, 2) ? &progress : NULL;
    else if (m.type == MESSAGE_STOP)
        m.stop.text = draw_text(w);
    else if (m.type == MESSAGE_HEALTH)
        m.health =
            (struct message_health){(enum message_fitness)draw(w, MESSAGE_N_FITNESSES),
                                    names[draw(w, MAX_NAMES)], draw(w, 2) ? draw_text(w) : ""};
    else if (m.type == MESSAGE_HEARTBEAT)
        m.heartbeat = (struct message_heartbeat){.run_id = "job", .limit_ms = draw(w, 0)};
    else if (m.type == MESSAGE_REFUSED)
        m.refused.text = draw_text(w);
    else if (m.type == MESSAGE_WELCOME)
        m.welcome = (struct message_welcome){.keep_alive_ms = 1, .lease_ms = 2, .note = ""};
    else if (m.type == MESSAGE_SEALED)
        m.sealed = (struct message_place){.n_nodes = 1,
                                          .world_size = 1,
                                          .n_local = 1,
                                          .host = "10.0.0.1",
                                          .port = 1,
                                          .agent_store = true};
    return m;
}

/* Through bytes and back, as it comes on a connection. returns whether the wire can carry it */
static bool carry(struct world *w, struct message *m)
{
    co_buf_consume(&w->frame, co_buf_len(&w->frame));
    if (channel_wire_encode(m, &w->frame, NULL) < 0)
        return false;
    return channel_wire_decode(co_buf_bytes(&w->frame), co_buf_len(&w->frame), &w->scratch, m,
                               NULL) == 0;
}

/* --- what the roster answers --- */

static int find_link(const struct world *w, uint64_t link)
{
    for (int i = 0; i < MAX_LINKS; i++)
        if (w->links[i] == link)
            return i;
    return -1;
}

static void check_place(const struct world *w, const struct message_place *p)
{
    require(p->n_nodes >= w->terms.min_nodes && p->n_nodes <= w->terms.max_nodes);
    require(p->node_index < p->n_nodes && p->first_rank < p->world_size);
    require(p->leads == (p->node_index == 0) && (p->first_rank == 0) == (p->node_index == 0));
}

/* returns how many ranks the members with a smaller index have. No other member has this one's
 * index */
static uint32_t count_before(const struct world *w, const struct roster_node_view *member)
{
    uint32_t n_ranks = 0, n_same = 0;
    struct roster_node_view v;
    for (uint32_t i = 0; i < roster_n_slots(w->roster); i++) {
        if (!roster_view(w->roster, i, &v) || !v.is_member)
            continue;
        n_ranks += v.node_index < member->node_index ? v.n_local : 0;
        n_same += v.node_index == member->node_index;
    }
    require(n_same == 1);
    return n_ranks;
}

static const struct roster_node *node_at(const struct world *w, uint32_t index)
{
    for (uint32_t i = 0; i < roster_n_slots(w->roster); i++)
        if (roster_is_member(&w->roster->nodes[i]) && w->roster->nodes[i].seat == (int32_t)index)
            return &w->roster->nodes[i];
    return NULL;
}

/* As they have just been made. */
static void check_segments(const struct world *w)
{
    const uint32_t n = w->roster->n_members, segment = w->terms.segment;
    require(n % segment == 0);
    for (uint32_t i = 0; i < n; i++) {
        const struct roster_node *node = node_at(w, i), *first = node_at(w, i / segment * segment);
        require(node != NULL && first != NULL && node->domain == first->domain);
        for (uint32_t k = i + 1; k < n && node_at(w, k)->domain != node->domain;)
            require(++k == n || node_at(w, k)->domain != node->domain);
    }
}

/* is_new   the ranks have just been assigned; later a member whose ranks all succeeded may be
 *          lost without harm, and leaves a hole */
static void check_members(const struct world *w, bool is_new)
{
    uint32_t n = 0;
    struct roster_node_view v;
    for (uint32_t i = 0; i < roster_n_slots(w->roster); i++) {
        if (!roster_view(w->roster, i, &v) || !v.is_member)
            continue;
        n++;
        require(v.first_rank == count_before(w, &v) || !is_new);
    }
    require(n <= w->terms.max_nodes && (n >= w->terms.min_nodes || !is_new));
}

static void step(struct world *w, struct roster_input *in)
{
    struct roster_actions actions;
    bool is_new = false;
    in->now_ms = w->now_ms;
    roster_step(w->roster, in, &actions);
    for (size_t i = 0; i < actions.n; i++) {
        const struct roster_action *a = &actions.items[i];
        int slot = a->type == ROSTER_CHANGED ? -1 : find_link(w, a->link);
        struct message m = a->message;
        require(a->type == ROSTER_CHANGED || slot >= 0);
        if (a->type == ROSTER_SEND && m.type == MESSAGE_SEALED)
            check_place(w, &m.sealed);
        require(a->type != ROSTER_SEND || carry(w, &m));
        if (a->type == ROSTER_CLOSE)
            w->links[slot] = 0;
        if (a->type == ROSTER_CHANGED)
            is_new = a->to == ROSTER_RUNNING && !w->roster->has_adopted;
    }
    check_members(w, is_new);
    if (is_new && w->terms.segment > 0)
        check_segments(w);
    require((roster_get_state(w->roster) == ROSTER_CLOSED) ==
            (roster_get_verdict(w->roster) != NULL));
}

/* --- turns --- */

static void say(struct world *w, uint8_t slot)
{
    struct message m = draw_message(w);
    if (w->links[slot] == 0) { /* a connection begins with a HELLO: its shell sees to that */
        m = (struct message){
            .type = MESSAGE_HELLO, .generation = MESSAGE_NO_GENERATION, .hello = draw_hello(w)};
        w->links[slot] = ++w->n_links;
    }
    if (carry(w, &m))
        step(w,
             &(struct roster_input){
                 .type = ROSTER_MESSAGE, .link = w->links[slot], .message = &m, .max_absent = 3});
}

static void lose(struct world *w, uint8_t slot)
{
    uint64_t link = w->links[slot];
    w->links[slot] = 0;
    if (link != 0)
        step(w, &(struct roster_input){.type = ROSTER_GONE, .link = link});
}

static void wait(struct world *w)
{
    uint64_t deadline_ms = roster_deadline_ms(w->roster);
    uint8_t choice = draw(w, 0);
    if (choice < 128)
        w->now_ms += choice * 20u;
    else if (deadline_ms != CO_NEVER_MS && deadline_ms > w->now_ms)
        w->now_ms = deadline_ms;
    if (choice % 8 == 7)
        step(w, &(struct roster_input){.type = ROSTER_ASLEEP});
    if (choice % 8 == 6) {
        const uint8_t instance[MESSAGE_INSTANCE_BYTES] = {draw(w, MAX_LINKS)};
        step(w,
             &(struct roster_input){.type = ROSTER_SILENT, .instance = instance, .silent_ms = 500});
    }
    step(w, &(struct roster_input){.type = ROSTER_TIME});
}

static void turn(struct world *w)
{
    uint8_t slot = draw(w, MAX_LINKS);
    uint8_t choice = draw(w, 8);
    if (choice == 0)
        lose(w, slot);
    else if (choice <= 2)
        wait(w);
    else
        say(w, slot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world w; /* a decoder's scratch is large */
    w = (struct world){.at = data, .end = data + size, .now_ms = 1000};
    uint32_t min = 1u + draw(&w, 3);
    w.terms = (struct message_terms){.min_nodes = min,
                                     .max_nodes = min + draw(&w, 3),
                                     .window_ms = draw(&w, 0) * 10u,
                                     .start_timeout_ms = 60000,
                                     .rejoin_timeout_ms = draw(&w, 0) * 100u,
                                     .max_restarts = draw(&w, 4),
                                     .no_restart_on = {1u << 3},
                                     .admit_at = (enum message_admit_at)draw(&w, 2),
                                     .admit_timeout_ms = draw(&w, 0) * 10u};
    struct roster_limits limits = {.max_nodes = 1u + draw(&w, 8)};
    w.terms.segment = size > 0 ? data[size - 1] % 4 : 0; /* 3: as without */
    if (w.terms.segment == 3)
        w.terms.segment = 0;
    if (w.terms.segment > 0) {
        w.terms.min_nodes *= w.terms.segment;
        w.terms.max_nodes *= w.terms.segment;
    }
    if (roster_create(&limits, &w.terms, NULL, 0, w.now_ms, &w.roster, NULL) < 0)
        return 0;
    while (w.at < w.end)
        turn(&w);
    roster_destroy(w.roster);
    co_buf_fini(&w.frame);
    return 0;
}
