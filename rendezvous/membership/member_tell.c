/* member_tell.c - the link to the roster, and what is said on it. Decides nothing. */
#include "member_priv.h"

#include "common/clock.h"

#include <assert.h>

/* --- The link --- */

enum {
    FIRST_ATTEMPTS = 4, /* after the immediate one: after 1, 2, 4 and 8 ms */
    QUICK_ATTEMPTS = 1 + FIRST_ATTEMPTS + LEASE_RETURN_MS / MEMBER_QUICK_MS,
    SOON_ATTEMPTS = QUICK_ATTEMPTS + (MEMBER_SOON_FOR_MS - LEASE_RETURN_MS) / MEMBER_SOON_MS,
};

/* A node that starts together with the endpoint waits for milliseconds, attempts are frequent while
 * the roster still keeps the node's place (LEASE_RETURN_MS), and rare later. */
static uint64_t wait_before_attempt_ms(uint32_t n)
{
    if (n <= FIRST_ATTEMPTS)
        return n == 0 ? 0 : 1u << (n - 1);
    if (n <= QUICK_ATTEMPTS)
        return MEMBER_QUICK_MS;
    uint64_t wait_ms = MEMBER_SOON_MS;
    for (uint32_t i = SOON_ATTEMPTS; i < n && wait_ms < MEMBER_AGAIN_MS; i++)
        wait_ms *= 2;
    return wait_ms < MEMBER_AGAIN_MS ? wait_ms : MEMBER_AGAIN_MS;
}

void member_connect(struct member *m)
{
    m->connect_at_ms = CO_NEVER_MS;
    m->n_attempts++;
    m->is_connecting = true;
    m->orders.connect = true;
}

void member_connect_soon(struct member *m, uint64_t now_ms)
{
    uint64_t wait_ms = wait_before_attempt_ms(m->n_attempts);
    if (wait_ms == 0)
        member_connect(m);
    else
        m->connect_at_ms = now_ms + wait_ms;
}

void member_drop_link(struct member *m)
{
    m->orders.disconnect |= m->is_linked || m->is_connecting;
    m->is_linked = m->is_welcome = m->is_connecting = false;
}

/* --- What is said --- */

struct message *member_say(struct member *m, enum message_type type, uint32_t generation)
{
    assert(m->orders.n_messages < MEMBER_MAX_MESSAGES);
    struct message *out = &m->messages[m->orders.n_messages++];
    *out = (struct message){.type = type, .generation = generation};
    return out;
}

/* The generation of which this node still has ranks, or has reported STOPPED. */
static struct message_was find_was(const struct member *m)
{
    bool has_stopped = member_has_said(m, REPORT_STOPPED) && m->stopped == m->place.generation;
    if (m->place.generation == MESSAGE_NO_GENERATION || !(m->holds || m->parks || has_stopped))
        return (struct message_was){.is_known = false};
    return (struct message_was){
        .is_known = true, .generation = m->place.generation, .place = m->place.place};
}

void member_say_hello(struct member *m, uint64_t now_ms)
{
    struct message *out = member_say(m, MESSAGE_HELLO, MESSAGE_NO_GENERATION);
    out->hello = m->hello;
    out->hello.sent_ms = now_ms;
    out->hello.resumes = m->holds || m->parks ? m->place.generation : MESSAGE_NO_GENERATION;
    out->hello.was = find_was(m);
    lease_sent(&m->lease, now_ms);
}

void member_say_stopped(struct member *m, uint32_t generation)
{
    member_say(m, MESSAGE_STOPPED, generation)->stopped.n_local = m->hello.n_local;
}

static void say_report(struct member *m, enum member_report what)
{
    uint32_t generation = m->place.generation;
    switch (what) {
    case REPORT_READY:
        member_say(m, MESSAGE_READY, generation)->ready =
            (struct message_ready){m->host, m->place.place.port, m->place.place.agent_store};
        break;
    case REPORT_FAILED:
        member_say(m, MESSAGE_FAILED, generation)->failed = m->failed;
        break;
    case REPORT_DONE:
        member_say(m, MESSAGE_DONE, generation);
        break;
    case REPORT_YIELD:
        member_say(m, MESSAGE_YIELD, generation);
        break;
    case REPORT_RESTART:
        member_say(m, MESSAGE_RESTART, generation);
        break;
    case REPORT_STOPPING:
        member_say(m, MESSAGE_STOPPING, m->stopped);
        break;
    case REPORT_STOPPED:
        member_say_stopped(m, m->stopped);
        break;
    case REPORT_LEAVE:
        member_say(m, MESSAGE_LEAVE, MESSAGE_NO_GENERATION)->leave.text = m->end_text;
        break;
    default:
        member_say(m, MESSAGE_END, MESSAGE_NO_GENERATION)->verdict =
            (struct message_verdict){.outcome = MESSAGE_ENDED,
                                     .exit_code = (uint8_t)m->end.exit_code,
                                     .rank = MESSAGE_NO_RANK,
                                     .node = m->name,
                                     .text = m->end_text};
        break;
    }
}

bool member_has_said(const struct member *m, enum member_report what)
{
    for (uint32_t i = 0; i < m->n_reports; i++)
        if (m->reports[i] == what)
            return true;
    return false;
}

void member_report(struct member *m, enum member_report what)
{
    if (!member_has_said(m, what))
        m->reports[m->n_reports++] = what;
    if (m->is_welcome)
        say_report(m, what);
}

/* The link that had them may have lost them. */
void member_report_again(struct member *m)
{
    for (uint32_t i = 0; i < m->n_reports; i++)
        say_report(m, m->reports[i]);
}
