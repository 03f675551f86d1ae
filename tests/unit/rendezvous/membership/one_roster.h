/* one_roster.h - a roster under test: what nodes send to it, what it sends to each node, and its
 * time. */
#ifndef DDP_TESTS_UNIT_RENDEZVOUS_MEMBERSHIP_ONE_ROSTER_H
#define DDP_TESTS_UNIT_RENDEZVOUS_MEMBERSHIP_ONE_ROSTER_H

#include "rendezvous/membership/roster.h"

#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static struct roster *r;
static uint64_t now_ms;
static char said[4096]; /* what the last step sent to each node: " 1<WELCOME RUNNING ..." */
static struct roster_actions last;

static const char *const message_names[] = {
#define X(name, meaning) #name,
    MESSAGE_TYPES(X)
#undef X
};

/* --- Messages to the roster --- */

static inline void add_said(const char *format, ...)
{
    size_t n = strlen(said);
    va_list args;
    va_start(args, format);
    vsnprintf(said + n, sizeof said - n, format, args);
    va_end(args);
}

static uint32_t max_absent; /* that the roster may adopt */

static inline void step(struct roster_input in)
{
    in.now_ms = now_ms;
    in.max_absent = max_absent;
    said[0] = '\0';
    roster_step(r, &in, &last);
    for (size_t i = 0; i < last.n; i++) {
        const struct roster_action *a = &last.items[i];
        if (a->type == ROSTER_CHANGED)
            add_said(" %s", roster_state_name(a->to));
        else if (a->type == ROSTER_CLOSE)
            add_said(" %d closed", (int)a->link);
        else
            add_said(" %d<%s", (int)a->link, message_names[a->message.type]);
    }
}

static inline const struct message *told(int link, enum message_type type)
{
    for (size_t i = 0; i < last.n; i++)
        if (last.items[i].type == ROSTER_SEND && last.items[i].link == (uint64_t)link &&
            last.items[i].message.type == type)
            return &last.items[i].message;
    ck_abort_msg("%d was not told %s, but:%s", link, message_names[type], said);
    return NULL;
}

static struct message_terms terms;

static inline struct message_hello hello_of(int node)
{
    static char names[100][16];
    struct message_hello h = {.run_id = "job",
                              .name = names[node],
                              .node_rank = MESSAGE_NO_RANK,
                              .n_local = 2,
                              .resumes = MESSAGE_NO_GENERATION,
                              .stop_ms = 5000,
                              .terms = terms};
    snprintf(names[node], sizeof names[node], "node%d", node);
    h.instance[0] = (uint8_t)node;
    return h;
}

static inline void say_hello(int link, struct message_hello h, bool local)
{
    struct message m = {.type = MESSAGE_HELLO, .generation = MESSAGE_NO_GENERATION, .hello = h};
    step((struct roster_input){
        .type = ROSTER_MESSAGE, .link = (uint64_t)link, .local = local, .message = &m});
}

static inline void join(int node) /* on a link of its number */
{
    say_hello(node, hello_of(node), false);
}

static inline void say_message(int link, struct message m)
{
    step((struct roster_input){.type = ROSTER_MESSAGE, .link = (uint64_t)link, .message = &m});
}

static inline void stopped(int link, uint32_t n_local)
{
    say_message(link, (struct message){.type = MESSAGE_STOPPED,
                                       .generation = roster_generation(r),
                                       .stopped = {n_local}});
}

static inline void say(int link, enum message_type type)
{
    if (type == MESSAGE_STOPPED)
        stopped(link, 2); /* as many as it came with */
    else
        say_message(link, (struct message){.type = type,
                                           .generation = roster_generation(r),
                                           .ready = {"host", 1234, true}});
}

static inline void fails(int link, int exit_code, bool final)
{
    say_message(link, (struct message){.type = MESSAGE_FAILED,
                                       .generation = roster_generation(r),
                                       .failed = {5, (uint8_t)exit_code, final, "bad luck"}});
}

/* Rank 4, since another one's end was seen. */
static inline void fails_of_another(int link, int exit_code)
{
    say_message(link, (struct message){.type = MESSAGE_FAILED,
                                       .generation = roster_generation(r),
                                       .failed = {.rank = 4,
                                                  .exit_code = (uint8_t)exit_code,
                                                  .text = "its peer is gone",
                                                  .consequence = true}});
}

static inline void leaves(int link)
{
    say_message(link, (struct message){.type = MESSAGE_LEAVE, .leave = {"SIGTERM"}});
}

static inline void gone(int link)
{
    step((struct roster_input){.type = ROSTER_GONE, .link = (uint64_t)link});
}

static inline void time_goes_on(uint64_t by_ms)
{
    now_ms += by_ms;
    step((struct roster_input){.type = ROSTER_TIME});
}

static inline void stops(int link)
{
    say(link, MESSAGE_STOPPING);
    say(link, MESSAGE_STOPPED);
}

#define assert_said(text) ck_assert_str_eq(said, text)

static inline void assert_state(enum roster_state state)
{
    ck_assert_msg(roster_get_state(r) == state, "%s: %s", roster_state_name(roster_get_state(r)),
                  roster_change(r));
}

/* --- Making one --- */

static inline void create_expecting(uint32_t min, uint32_t max, uint32_t max_restarts,
                                    const char *const *expected, size_t n)
{
    struct roster_limits limits = {0};
    struct co_error err;
    terms = (struct message_terms){.min_nodes = min,
                                   .max_nodes = max,
                                   .window_ms = 3000,
                                   .start_timeout_ms = 600000,
                                   .rejoin_timeout_ms = 60000,
                                   .max_restarts = max_restarts};
    now_ms = 1000;
    ck_assert_int_eq(roster_create(&limits, &terms, expected, n, now_ms, &r, &err), 0);
}

static inline void create(uint32_t min, uint32_t max, uint32_t max_restarts)
{
    create_expecting(min, max, max_restarts, NULL, 0);
}

/* A generation of `n` nodes, each of which has received its ranks. */
static inline void create_running(uint32_t min, uint32_t max, int n, uint32_t max_restarts)
{
    create(min, max, max_restarts);
    for (int i = 1; i <= n; i++)
        join(i);
    if (roster_get_state(r) == ROSTER_OPEN)
        time_goes_on(3000);
    say(1, MESSAGE_READY);
    assert_state(ROSTER_RUNNING);
}

static inline void set_up(void)
{
    r = NULL;
    max_absent = 0;
}

static inline void tear_down(void)
{
    roster_destroy(r);
}

#endif
