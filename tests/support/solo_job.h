/* solo_job.h - a job of one node without a process: its supervisor, and the roster that decides for
 * it, joined as node_roster.c and solo_link.c join them. */
#ifndef DDP_TESTS_SUPPORT_SOLO_JOB_H
#define DDP_TESTS_SUPPORT_SOLO_JOB_H

#include "launcher/membership/roster_agent.h"
#include "rendezvous/membership/roster.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

enum { SOLO_JOB_MAX_QUEUED = 16, SOLO_JOB_LINK = 1 };

#define SOLO_JOB_LONG_MS (MESSAGE_MAX_MS - 1)

struct solo_job {
    struct supervisor *supervisor; /* owned, as the next three */
    struct member *member;
    struct roster *roster;
    struct roster_agent agent;
    struct message queue[SOLO_JOB_MAX_QUEUED]; /* from the roster */
    int first, n;
    bool is_settling;
    uint64_t now_ms; /* the caller's to move */

    /* after each step of the supervisor; may feed */
    void (*carry_out)(void *arg, const struct supervisor_orders *o);
    void *arg;
};

static inline void solo_job_settle(struct solo_job *j);

static inline void solo_job_feed(struct solo_job *j, struct supervisor_event e)
{
    struct supervisor_orders o;
    e.now_ms = j->now_ms;
    supervisor_step(j->supervisor, &e, &o);
    j->carry_out(j->arg, &o);
    solo_job_settle(j);
}

static inline void solo_job_step_roster(struct solo_job *j, struct roster_input in)
{
    struct roster_actions actions;
    in.now_ms = j->now_ms;
    in.link = SOLO_JOB_LINK;
    in.local = true;
    roster_step(j->roster, &in, &actions);
    for (size_t i = 0; i < actions.n; i++)
        if (actions.items[i].type == ROSTER_SEND) {
            assert(j->n < SOLO_JOB_MAX_QUEUED);
            j->queue[(j->first + j->n++) % SOLO_JOB_MAX_QUEUED] = actions.items[i].message;
        }
}

static inline void solo_job_follow(struct solo_job *j, struct member_orders o);

static inline void solo_job_step_member(struct solo_job *j, struct member_input in)
{
    struct member_orders o;
    in.now_ms = j->now_ms;
    member_step(j->member, &in, &o);
    solo_job_follow(j, o);
}

static inline void solo_job_follow(struct solo_job *j, struct member_orders o)
{
    struct supervisor_event events[ROSTER_AGENT_MAX_EVENTS];
    for (size_t i = 0; i < o.n_messages; i++)
        solo_job_step_roster(
            j, (struct roster_input){.type = ROSTER_MESSAGE, .message = &o.messages[i]});
    int n = roster_agent_obey(&j->agent, j->member, &o, events);
    if (o.open_store)
        solo_job_step_member(j, (struct member_input){.type = MEMBER_STORE_OPEN, .host = ""});
    for (int i = 0; i < n; i++)
        solo_job_feed(j, events[i]);
}

static inline void solo_job_settle(struct solo_job *j)
{
    struct member_input in;
    if (j->is_settling)
        return;
    j->is_settling = true;
    for (;;) {
        if (j->n > 0) {
            const struct message m = j->queue[j->first];
            j->first = (j->first + 1) % SOLO_JOB_MAX_QUEUED;
            j->n--;
            solo_job_step_member(j, (struct member_input){.type = MEMBER_MESSAGE, .message = &m});
        } else if (roster_agent_hear(&j->agent, j->supervisor, j->member, &in)) {
            solo_job_step_member(j, in);
        } else {
            break;
        }
    }
    j->is_settling = false;
}

/* Begin the job: its first ranks are asked for. j->now_ms, carry_out and arg are set.
 *
 * returns   0, -ENOMEM */
static inline int solo_job_begin(struct solo_job *j, const struct supervisor_limits *limits,
                                 struct message_terms terms)
{
    terms.min_nodes = terms.max_nodes = 1;
    terms.start_timeout_ms = SOLO_JOB_LONG_MS;
    struct message_hello hello = {.run_id = "job",
                                  .name = "n0",
                                  .node_rank = MESSAGE_NO_RANK,
                                  .n_local = (uint32_t)limits->n_ranks,
                                  .stop_ms = 1};
    const struct roster_limits long_ones = {.keep_alive_ms = SOLO_JOB_LONG_MS,
                                            .lease_ms = MESSAGE_MAX_MS,
                                            .ready_ms = SOLO_JOB_LONG_MS,
                                            .slack_ms = SOLO_JOB_LONG_MS};
    struct member_orders o;
    hello.terms = terms;
    j->supervisor = supervisor_create(limits);
    if (j->supervisor == NULL)
        return -ENOMEM;
    int rc = roster_create(&long_ones, &terms, NULL, 0, j->now_ms, &j->roster, NULL);
    if (rc == 0)
        rc = member_create(&(struct member_limits){.start_timeout_ms = SOLO_JOB_LONG_MS}, &hello,
                           "n0", &j->member, NULL);
    if (rc < 0)
        return rc;
    roster_agent_init(&j->agent, "n0", "program", false);
    j->agent.is_alone = true;
    member_begin(j->member, j->now_ms, &o);
    solo_job_follow(j, o);
    solo_job_step_member(j, (struct member_input){.type = MEMBER_LINK_UP, .local = true});
    solo_job_settle(j);
    return 0;
}

/* When a pause before a restart ends; CO_NEVER_MS: no pause. */
static inline uint64_t solo_job_pause_ms(const struct solo_job *j)
{
    const uint64_t at_ms = roster_deadline_ms(j->roster);
    return at_ms < SOLO_JOB_LONG_MS / 2 ? at_ms : UINT64_MAX;
}

static inline void solo_job_end_pause(struct solo_job *j, bool in_a_hurry)
{
    solo_job_step_roster(j, (struct roster_input){.type = in_a_hurry ? ROSTER_HURRY : ROSTER_TIME});
    solo_job_settle(j);
}

/* ddpctl asks for one. */
static inline void solo_job_restart(struct solo_job *j)
{
    solo_job_step_member(j, (struct member_input){.type = MEMBER_RESTART});
    solo_job_settle(j);
}

static inline void solo_job_fini(struct solo_job *j)
{
    supervisor_destroy(j->supervisor);
    member_destroy(j->member);
    roster_destroy(j->roster);
}

#endif
