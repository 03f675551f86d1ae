/* sim_membership_big - one job of very many nodes: what a change costs.
 *
 *     sim_membership_big [NODES]
 *
 * Roster, members and bytes are the real ones; connections are queues in memory, and ranks stop as
 * soon as they get the order. Prints for each change how many frames a node received and sent, how
 * long the roster took for one event and how long for all of them. Checks what does not depend on
 * the machine: for any number of nodes, no node receives or sends more than a few frames per
 * change, and every node has a place after it. */
#include "rendezvous/channel/channel_wire.h"
#include "rendezvous/membership/member.h"
#include "rendezvous/membership/roster.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/error.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FRAMES = 4 }; /* to or from a node, per change; the leader's MEMBERS apart */

struct node {
    struct member *member;
    uint32_t n_got, n_sent; /* frames, in this change */
    bool runs;
};

struct frame {
    uint32_t node;
    bool to_roster;
    size_t at, len; /* in `bytes` */
};

static struct big {
    uint32_t n_nodes;
    struct node *nodes;
    struct roster *roster;
    uint64_t now_ms;
    struct co_buf bytes, frames; /* first in, first out; the bytes of a round are freed together */
    uint64_t n_frames, n_bytes, n_events, roster_ns, slowest_ns;
    struct channel_wire_scratch scratch;
} big;

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* --- Frames --- */

static void send(struct big *b, uint32_t node, bool to_roster, const struct message *m)
{
    struct frame f = {.node = node, .to_roster = to_roster, .at = b->bytes.end - b->bytes.start};
    require(channel_wire_encode(m, &b->bytes, NULL) == 0, "a message that cannot be sent");
    f.len = co_buf_len(&b->bytes) - f.at;
    require(co_buf_append(&b->frames, &f, sizeof f) == 0, "no memory");
    if (to_roster)
        b->nodes[node].n_sent++;
    else if (m->type != MESSAGE_MEMBERS)
        b->nodes[node].n_got++;
    b->n_frames++;
    b->n_bytes += f.len;
}

static void feed_roster(struct big *b, struct roster_input in)
{
    struct roster_actions actions;
    in.now_ms = b->now_ms;
    uint64_t begun_ns = co_now_ns();
    roster_step(b->roster, &in, &actions);
    uint64_t took_ns = co_now_ns() - begun_ns;
    b->n_events++;
    b->roster_ns += took_ns;
    b->slowest_ns = took_ns > b->slowest_ns ? took_ns : b->slowest_ns;
    for (size_t i = 0; i < actions.n; i++)
        if (actions.items[i].type == ROSTER_SEND && b->nodes[actions.items[i].link - 1].member)
            send(b, (uint32_t)actions.items[i].link - 1, false, &actions.items[i].message);
}

static void feed_node(struct big *b, uint32_t i, struct member_input in)
{
    struct node *n = &b->nodes[i];
    struct member_orders o;
    in.now_ms = b->now_ms;
    member_step(n->member, &in, &o);
    for (size_t k = 0; k < o.n_messages; k++)
        send(b, i, true, &o.messages[k]);
    n->runs |= o.start_ranks;
    if (o.open_store)
        feed_node(
            b, i,
            (struct member_input){
                .type = MEMBER_STORE_OPEN, .host = "node1", .port = 4242, .agent_store = true});
    if (o.stop_ranks) {
        n->runs = false;
        feed_node(b, i, (struct member_input){.type = MEMBER_RANKS_STOPPED});
    }
}

static size_t heap_bytes(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd; /* long arrays are mapped */
}

/* Until no node has a frame to send. Frames that are sent meanwhile are for the next round. */
static void run_dry(struct big *b)
{
    while (co_buf_len(&b->frames) > 0) {
        struct co_buf frames = b->frames, bytes = b->bytes;
        b->frames = b->bytes = (struct co_buf){0};
        for (size_t at = 0; at < co_buf_len(&frames); at += sizeof(struct frame)) {
            struct frame f;
            struct message m;
            memcpy(&f, co_buf_bytes(&frames) + at, sizeof f);
            require(
                channel_wire_decode(co_buf_bytes(&bytes) + f.at, f.len, &b->scratch, &m, NULL) == 0,
                "a message that cannot be read");
            if (f.to_roster)
                feed_roster(b, (struct roster_input){
                                   .type = ROSTER_MESSAGE, .link = f.node + 1, .message = &m});
            else if (b->nodes[f.node].member != NULL)
                feed_node(b, f.node, (struct member_input){.type = MEMBER_MESSAGE, .message = &m});
        }
        co_buf_fini(&frames);
        co_buf_fini(&bytes);
    }
}

/* --- Changes --- */

static void begin_change(struct big *b)
{
    for (uint32_t i = 0; i < b->n_nodes; i++)
        b->nodes[i].n_got = b->nodes[i].n_sent = 0;
    b->n_frames = b->n_bytes = b->n_events = b->roster_ns = b->slowest_ns = 0;
}

static void end_change(struct big *b, const char *what)
{
    uint32_t most_got = 0, most_sent = 0;
    run_dry(b);
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        most_got = b->nodes[i].n_got > most_got ? b->nodes[i].n_got : most_got;
        most_sent = b->nodes[i].n_sent > most_sent ? b->nodes[i].n_sent : most_sent;
    }
    require(most_got <= MAX_FRAMES && most_sent <= MAX_FRAMES, "too many frames for one node");
    printf("%-26s %8" PRIu64 " frames, %4.1f MB; a node got %" PRIu32 ", sent %" PRIu32
           " at most; an event took %6.2f us, the slowest %6.2f ms, all %7.1f ms\n",
           what, b->n_frames, (double)b->n_bytes / 1e6, most_got, most_sent,
           (double)b->roster_ns / (double)b->n_events / 1e3, (double)b->slowest_ns / 1e6,
           (double)b->roster_ns / 1e6);
}

static void require_running(const struct big *b, uint32_t n)
{
    uint32_t n_running = 0;
    for (uint32_t i = 0; i < b->n_nodes; i++)
        n_running += b->nodes[i].runs;
    require(roster_get_state(b->roster) == ROSTER_RUNNING && n_running == n,
            "not everybody has a place");
}

static void start_node(struct big *b, uint32_t i, const struct message_terms *terms)
{
    struct member_limits limits = {.start_timeout_ms = 600000};
    char name[32];
    struct message_address address = {.family = 4};
    memcpy(address.bytes, &i, sizeof i);
    snprintf(name, sizeof name, "node%" PRIu32, i);
    struct message_hello hello = {.run_id = "big",
                                  .name = name,
                                  .node_rank = MESSAGE_NO_RANK,
                                  .n_local = 8,
                                  .stop_ms = 30000,
                                  .n_addresses = 1,
                                  .addresses = &address,
                                  .terms = *terms};
    memcpy(hello.instance, &i, sizeof i);
    struct member_orders o;
    require(member_create(&limits, &hello, "head", &b->nodes[i].member, NULL) == 0, "no memory");
    member_begin(b->nodes[i].member, b->now_ms, &o);
    feed_node(b, i, (struct member_input){.type = MEMBER_LINK_UP});
}

static void end_node(struct big *b, uint32_t i)
{
    member_destroy(b->nodes[i].member);
    b->nodes[i].member = NULL;
    b->nodes[i].runs = false;
    feed_roster(b, (struct roster_input){.type = ROSTER_GONE, .link = i + 1});
    b->now_ms += 50;
    feed_roster(b, (struct roster_input){.type = ROSTER_TIME});
}

static void beat_hearts(struct big *b)
{
    b->now_ms += 900;
    for (uint32_t i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].member != NULL)
            feed_node(b, i, (struct member_input){.type = MEMBER_TIME});
    b->now_ms += 100;
    for (uint32_t i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].member != NULL && member_deadline_ms(b->nodes[i].member) <= b->now_ms)
            feed_node(b, i, (struct member_input){.type = MEMBER_TIME});
}

static void create(struct big *b, uint32_t n, const struct message_terms *terms)
{
    struct roster_limits limits = {0};
    b->n_nodes = n;
    b->now_ms = 1000;
    b->nodes = calloc(n, sizeof *b->nodes);
    require(b->nodes != NULL, "no memory");
    require(roster_create(&limits, terms, NULL, 0, b->now_ms, &b->roster, NULL) == 0, "no roster");
}

/* The last node joins later. */
static void run(struct big *b, uint32_t n, const struct message_terms *terms)
{
    begin_change(b);
    for (uint32_t i = 0; i < n - 1; i++)
        start_node(b, i, terms);
    run_dry(b);
    b->now_ms += terms->window_ms;
    feed_roster(b, (struct roster_input){.type = ROSTER_TIME});
    end_change(b, "all but one join");
    require_running(b, n - 1);

    begin_change(b);
    beat_hearts(b);
    end_change(b, "keep-alives");

    begin_change(b);
    start_node(b, n - 1, terms);
    end_change(b, "the last one joins");
    require_running(b, n);

    begin_change(b);
    end_node(b, n / 2);
    end_change(b, "one is lost");
    require_running(b, n - 1);

    begin_change(b);
    end_node(b, 0);
    end_change(b, "rank 0's node is lost");
    require_running(b, n - 2);

    begin_change(b);
    feed_node(b, 1, (struct member_input){.type = MEMBER_RANK_FAILED, .exit_code = 9, .text = "x"});
    end_change(b, "a rank fails for good");
    require(roster_get_state(b->roster) == ROSTER_CLOSED, "no verdict");
}

int main(int argc, char **argv)
{
    uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 10000;
    struct message_terms terms = {.min_nodes = n / 2,
                                  .max_nodes = n,
                                  .window_ms = 1000,
                                  .start_timeout_ms = 600000,
                                  .rejoin_timeout_ms = 600000};
    size_t before = heap_bytes();
    struct roster *r;
    require(n >= 8 && n <= MESSAGE_MAX_NODES, "usage: sim_membership_big [NODES], 8 to 65536");
    create(&big, n, &terms);
    r = big.roster;
    run(&big, n, &terms);
    for (uint32_t i = 0; i < n; i++)
        member_destroy(big.nodes[i].member);
    free(big.nodes);
    co_buf_fini(&big.bytes);
    co_buf_fini(&big.frames);
    printf("%" PRIu32 " nodes; the roster has %.0f bytes for each\n", n,
           (double)(heap_bytes() - before) / n);
    roster_destroy(r);
    return 0;
}
