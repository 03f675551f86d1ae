/* one_member.h - a member under test: what it receives, what it sends and orders, and its time. */
#ifndef DDP_TESTS_UNIT_RENDEZVOUS_MEMBERSHIP_ONE_MEMBER_H
#define DDP_TESTS_UNIT_RENDEZVOUS_MEMBERSHIP_ONE_MEMBER_H

#include "rendezvous/membership/member.h"

#include "common/error.h"
#include "tests/support/machine_checks.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

/* The cases of each file, with the fixture below. */
TCase *member_ranks_cases(void);
TCase *member_links_cases(void);

static struct member *m;
static uint64_t now_ms;
static char did[1024]; /* what the last step sent and ordered: " HELLO connect ..." */
static struct member_orders o;

static const char *const message_names[] = {
#define X(name, meaning) #name,
    MESSAGE_TYPES(X)
#undef X
};

static inline void add_did(bool really, const char *what)
{
    size_t n = strlen(did);
    if (really)
        snprintf(did + n, sizeof did - n, " %s", what);
}

static inline void note_orders(void)
{
    did[0] = '\0';
    for (size_t i = 0; i < o.n_messages; i++)
        add_did(true, message_names[o.messages[i].type]);
    add_did(o.disconnect, "disconnect");
    add_did(o.connect, "connect");
    add_did(o.open_store, "open");
    add_did(o.start_ranks, "start");
    add_did(o.request_checkpoint, "tell");
    add_did(o.stop_ranks, "stop");
    add_did(o.kill_ranks, "kill");
    add_did(o.ended, "end");
}

static inline void step(struct member_input in)
{
    in.now_ms = now_ms;
    member_step(m, &in, &o);
    note_orders();
}

static inline void hear(struct message message)
{
    step((struct member_input){.type = MEMBER_MESSAGE, .message = &message});
}

static inline void hears(enum message_type type, uint32_t generation)
{
    hear((struct message){.type = type, .generation = generation, .stop = {MESSAGE_WHY_JOIN, "x"}});
}

static inline void event(enum member_input_type type)
{
    step((struct member_input){.type = type, .text = "", .host = "host", .port = 77});
}

static inline void time_goes_on(uint64_t by_ms)
{
    now_ms += by_ms;
    event(MEMBER_TIME);
}

static bool elects; /* the roster can be replaced */

static inline void welcomed(bool resumed)
{
    hear((struct message){.type = MESSAGE_WELCOME,
                          .generation = MESSAGE_NO_GENERATION,
                          .welcome = {.sent_ms = now_ms,
                                      .keep_alive_ms = 1000,
                                      .lease_ms = 3000,
                                      .resumed = resumed,
                                      .elects = elects,
                                      .note = ""}});
}

static inline void sealed(uint32_t generation, bool leads)
{
    hear((struct message){.type = MESSAGE_SEALED,
                          .generation = generation,
                          .sealed = {.n_nodes = 2,
                                     .node_index = leads ? 0 : 1,
                                     .world_size = 4,
                                     .first_rank = leads ? 0 : 2,
                                     .n_local = 2,
                                     .leads = leads,
                                     .agent_store = true,
                                     .host = leads ? "" : "host",
                                     .port = leads ? 0 : 77}});
}

static inline void refused(bool again)
{
    hear((struct message){.type = MESSAGE_REFUSED,
                          .refused = {MESSAGE_REFUSED_LOST, again, "no reason"}});
}

static inline void verdict(int exit_code)
{
    hear((struct message){.type = MESSAGE_VERDICT,
                          .verdict = {exit_code == 0 ? MESSAGE_WELL : MESSAGE_RANK_FAILED,
                                      (uint8_t)exit_code, 3, "node9", "rank 3"}});
}

static inline void answered(uint64_t sent_ms)
{
    hear((struct message){.type = MESSAGE_LEASE, .lease = {.sent_ms = sent_ms}});
}

static inline void parked(uint32_t n_ranks)
{
    step((struct member_input){.type = MEMBER_RANKS_PARKED, .n_ranks = n_ranks});
}

#define assert_did(text) ck_assert_str_eq(did, text)

static inline void assert_state(enum member_state state)
{
    ck_assert_msg(member_get_state(m) == state, "in %s", member_state_name(member_get_state(m)));
}

static inline void create_with_limits(struct member_limits limits)
{
    struct message_hello hello = {.run_id = "job",
                                  .name = "node1",
                                  .n_local = 2,
                                  .resumes = MESSAGE_NO_GENERATION,
                                  .terms = {.min_nodes = 1, .max_nodes = 2}};
    struct co_error err;
    now_ms = 100000;
    ck_assert_int_eq(member_create(&limits, &hello, "head:29400", &m, &err), 0);
    member_begin(m, now_ms, &o);
    note_orders();
    assert_did(" connect");
}

static inline void create_with_start_timeout(uint64_t start_timeout_ms)
{
    create_with_limits(
        (struct member_limits){.start_timeout_ms = start_timeout_ms, .failover_timeout_ms = 60000});
}

static inline void create(void)
{
    create_with_start_timeout(10000);
}

static inline void create_waiting(void)
{
    create();
    event(MEMBER_LINK_UP);
    assert_did(" HELLO");
    welcomed(false);
    assert_state(MEMBER_WAITING);
}

static inline void create_running(void)
{
    create_waiting();
    sealed(0, false);
    assert_did(" start");
}

static inline void create_that_seeks(uint64_t seek_ms)
{
    create_with_limits((struct member_limits){
        .start_timeout_ms = 10000, .failover_timeout_ms = 60000, .seek_ms = seek_ms});
    elects = true;
    event(MEMBER_LINK_UP);
    welcomed(false);
    sealed(0, false);
    assert_did(" start");
}

static inline void set_up(void)
{
    m = NULL;
    elects = false;
}

static inline void tear_down(void)
{
    member_destroy(m);
}

#endif
