/* member_input.c - inputs of the member: messages, facts about ranks, the link, and the time.
 *
 * Read member_step() first. It stores the facts of the input, makes an event of it, and applies the
 * table of member.c. Time comes last: it may reconnect, send a keep-alive, or end the lease. An
 * input that does not fit the state is dropped here or ignored by the table; it is never an error,
 * because a message can cross an order on the wire.
 *
 * Invariant: after the lease has ended, no rank of this node runs (is_lapsed() gives the event
 * LEASE_EXPIRED, which kills), even if no message arrives any more. */
#include "member_priv.h"

#include "common/clock.h"
#include "common/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- What comes on the link --- */

static void lose_link(struct member *m, uint64_t now_ms, const char *why)
{
    snprintf(m->link_text, sizeof m->link_text, "%s", why);
    m->was_refused = m->needs_no_lease = false;
    m->is_linked = m->is_welcome = m->is_connecting = false;
    if (m->state != MEMBER_ENDED)
        member_connect_soon(m, now_ms);
}

/* The roster's end breaks its word: as if the link had broken. */
static void break_link(struct member *m, uint64_t now_ms, const char *why)
{
    member_drop_link(m);
    lose_link(m, now_ms, why);
}

/* The roster may be new and count generations from 0 again, so reports about the old generations
 * mean nothing to it. */
static void begin_stay(struct member *m)
{
    bool leaves = member_has_reported(m, REPORT_LEAVE), ends = member_has_reported(m, REPORT_END);
    m->n_reports = 0;
    m->place.generation = m->stopped = MESSAGE_NO_GENERATION;
    if (leaves)
        member_report(m, REPORT_LEAVE);
    if (ends)
        member_report(m, REPORT_END);
}

static void hear_welcome(struct member *m, const struct message_welcome *w, uint64_t now_ms)
{
    struct co_error err;
    if (!m->is_local &&
        lease_begin(&m->lease, w->sent_ms, w->keep_alive_ms, w->lease_ms, &err) < 0) {
        break_link(m, now_ms, err.text);
        return;
    }
    m->is_welcome = m->was_welcome = true;
    m->vacant_ms = CO_NEVER_MS;
    m->seek_ms = w->elects ? m->limits.seek_ms : 0;
    m->ask_every_ms = w->keep_alive_ms;
    m->ask_at_ms = now_ms + w->keep_alive_ms;
    m->n_attempts = 0;
    snprintf(m->note, sizeof m->note, "%s", w->note);
    if (w->resumed)
        member_report_again(m);
    else
        begin_stay(m);
    member_send_health(m);
}

static void keep_progress(struct member *m, const struct message_progress *p)
{
    m->has_progress = p != NULL;
    if (p == NULL)
        return;
    m->progress = *p;
    for (uint32_t i = 0; i < p->n_names; i++) {
        snprintf(m->progress_names[i], sizeof m->progress_names[i], "%s", p->names[i]);
        m->progress.names[i] = m->progress_names[i];
    }
}

static void hear_lease(struct member *m, const struct message_lease *l, uint64_t now_ms)
{
    struct co_error err;
    if (!m->is_local && lease_answered(&m->lease, l->sent_ms, &err) < 0)
        break_link(m, now_ms, err.text);
    else
        keep_progress(m, l->progress);
}

static bool has_room(struct member *m, uint32_t n)
{
    if (n <= m->cap_addresses)
        return true;
    struct message_address *bigger = realloc(m->addresses, n * sizeof *bigger);
    if (bigger == NULL)
        return false;
    m->addresses = bigger;
    m->cap_addresses = n;
    return true;
}

/* A list that does not continue where the previous one ended is useless: the roster sends the whole
 * list again when the link is made again. */
static void hear_members(struct member *m, const struct message_members *list, uint64_t now_ms)
{
    if (list->first == 0)
        m->n_addresses = 0;
    if (list->first != m->n_addresses || list->n > list->n_all - list->first ||
        !has_room(m, list->n_all)) {
        break_link(m, now_ms, "its address list is invalid, or out of memory");
        return;
    }
    if (list->n > 0)
        memcpy(m->addresses + list->first, list->addresses, list->n * sizeof *list->addresses);
    m->n_addresses = list->first + (uint32_t)list->n;
}

/* Newer than every generation that this node had: the numbers only grow during a session. */
static bool is_new(const struct member *m, uint32_t generation)
{
    return (m->place.generation == MESSAGE_NO_GENERATION || generation > m->place.generation) &&
           (m->stopped == MESSAGE_NO_GENERATION || generation > m->stopped);
}

/* The SEALED before it was lost with a link, and will not be obeyed if it comes after all. Or all
 * has stopped, and only the reason is new. */
static void hear_stop_of_unknown(struct member *m, const struct message *t)
{
    uint32_t generation = t->generation;
    if (m->stopped == MESSAGE_NO_GENERATION || generation > m->stopped)
        m->stopped = generation;
    if (generation == m->place.generation)
        snprintf(m->stop_text, sizeof m->stop_text, "%s", t->stop.text);
    member_send(m, MESSAGE_STOPPING, generation);
    member_send_stopped(m, generation);
}

static void feed(struct member *m, enum member_event_type type, const struct member_input *in,
                 uint64_t now_ms)
{
    member_apply(m, &(struct member_event){.type = type,
                                           .now_ms = now_ms,
                                           .input = in,
                                           .message = in != NULL ? in->message : NULL});
}

/* A place for more ranks than this node has could not be filled. */
static void hear_sealed(struct member *m, const struct member_input *in)
{
    if (in->message->sealed.n_local > m->n_ranks)
        break_link(m, in->now_ms,
                   "its generation has more ranks on this node than the node offered");
    else
        feed(m, MEMBER_EV_SEALED, in, in->now_ms);
}

static void hear_of_generation(struct member *m, const struct member_input *in)
{
    const struct message *t = in->message;
    bool is_ours = m->holds && t->generation == m->place.generation;
    if (t->type == MESSAGE_SEALED && is_new(m, t->generation))
        hear_sealed(m, in);
    else if (t->type == MESSAGE_STOP && is_ours)
        feed(m, MEMBER_EV_STOP, in, in->now_ms);
    else if (t->type == MESSAGE_STOP && !m->holds && m->is_welcome)
        hear_stop_of_unknown(m, t);
    else if (t->type == MESSAGE_CHECKPOINT_REQUEST && is_ours)
        feed(m, MEMBER_EV_CHECKPOINT_REQUEST, in, in->now_ms);
    else if (t->type == MESSAGE_MEMBERS && is_new(m, t->generation))
        hear_members(m, &t->members, in->now_ms);
}

static void message_take(struct member *m, const struct member_input *in)
{
    const struct message *t = in->message;
    if (!m->is_linked)
        return;
    m->heard_ms = in->now_ms;
    switch (t->type) {
    case MESSAGE_WELCOME:
        if (!m->is_welcome)
            hear_welcome(m, &t->welcome, in->now_ms);
        if (m->is_welcome)
            feed(m, MEMBER_EV_WELCOME, in, in->now_ms);
        break;
    case MESSAGE_LEASE:
        hear_lease(m, &t->lease, in->now_ms);
        break;
    case MESSAGE_REFUSED:
        feed(m, MEMBER_EV_REFUSED, in, in->now_ms);
        break;
    case MESSAGE_VERDICT:
        feed(m, MEMBER_EV_VERDICT, in, in->now_ms);
        break;
    default:
        hear_of_generation(m, in);
        break;
    }
}

/* --- Time --- */

static bool is_lapsed(const struct member *m, uint64_t now_ms)
{
    return member_lapse_ms(m) <= now_ms;
}

/* When to send the next keep-alive without a lease. The member on the node that has the
 * roster needs no lease, but while it waits, the answers name the nodes that the roster waits
 * for. */
static uint64_t ask_ms(const struct member *m)
{
    bool waits = m->state == MEMBER_WAITING || m->state == MEMBER_PARKED;
    return m->is_local && m->is_welcome && waits && m->ask_every_ms != 0 ? m->ask_at_ms
                                                                         : CO_NEVER_MS;
}

static void send_keep_alive(struct member *m, uint64_t now_ms)
{
    member_send(m, MESSAGE_KEEP_ALIVE, MESSAGE_NO_GENERATION)->keep_alive.sent_ms = now_ms;
    lease_sent(&m->lease, now_ms);
}

static void take_time(struct member *m, uint64_t now_ms)
{
    if (is_lapsed(m, now_ms))
        feed(m, MEMBER_EV_LEASE_EXPIRED, NULL, now_ms);
    if (m->state == MEMBER_JOINING && now_ms >= m->late_at_ms)
        feed(m, MEMBER_EV_TIMED_OUT, NULL, now_ms);
    if (m->state == MEMBER_ENDED)
        return;
    if (member_deaf_ms(m) <= now_ms)
        break_link(m, now_ms, "no reply");
    if (m->connect_at_ms <= now_ms)
        member_connect(m);
    if (m->is_welcome && lease_next_ms(&m->lease) <= now_ms)
        send_keep_alive(m, now_ms);
    if (ask_ms(m) <= now_ms) {
        member_send(m, MESSAGE_KEEP_ALIVE, MESSAGE_NO_GENERATION)->keep_alive.sent_ms = now_ms;
        m->ask_at_ms = now_ms + m->ask_every_ms;
    }
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t member_deadline_ms(const struct member *m)
{
    uint64_t deadline_ms = m->connect_at_ms;
    if (m->state == MEMBER_ENDED)
        return CO_NEVER_MS;
    if (m->state == MEMBER_JOINING)
        deadline_ms = sooner(deadline_ms, m->late_at_ms);
    if (m->is_welcome)
        deadline_ms = sooner(deadline_ms, lease_next_ms(&m->lease));
    deadline_ms = sooner(deadline_ms, ask_ms(m));
    deadline_ms = sooner(deadline_ms, member_deaf_ms(m));
    return sooner(deadline_ms, member_lapse_ms(m));
}

/* --- What the caller feeds --- */

static void take_vacancy(struct member *m, const struct member_input *in)
{
    if (m->vacant_ms == CO_NEVER_MS)
        m->vacant_ms = in->now_ms;
    lease_extend(&m->lease, sooner(in->asked_ms + m->lease.lease_ms,
                                   m->vacant_ms + m->limits.failover_timeout_ms));
}

/* A rejection has no proof, so it is final only if nothing else answers for a time. A node that the
 * roster knows ignores LINK_REFUSED: its lease decides. */
static void take_link_down(struct member *m, const struct member_input *in)
{
    lose_link(m, in->now_ms, in->text);
    if (!in->rejected) {
        m->rejected_at_ms = CO_NEVER_MS;
    } else {
        if (m->rejected_at_ms == CO_NEVER_MS)
            m->rejected_at_ms = in->now_ms;
        m->rejected_code = in->exit_code;
        if (!m->is_connecting)
            m->connect_at_ms = in->now_ms + MEMBER_AGAIN_MS;
    }
    if (in->final || (in->rejected && in->now_ms >= m->rejected_at_ms + MEMBER_REJECTED_MS))
        feed(m, MEMBER_EV_LINK_REFUSED, in, in->now_ms);
}

static void take_lease(struct member *m, const struct member_input *in)
{
    m->owes_leased = in->needed;
    m->needs_no_lease |= !in->needed && m->is_linked;
}

/* Whether the roster still has this node is asked at once. */
static void take_suspension(struct member *m, uint64_t now_ms)
{
    m->suspended_ms = now_ms;
    if (m->is_welcome)
        send_keep_alive(m, now_ms);
}

static void take_link_up(struct member *m, const struct member_input *in)
{
    m->needs_no_lease = false;
    m->is_connecting = false;
    m->is_linked = true;
    m->is_local = in->local;
    m->is_welcome = false;
    member_send_hello(m, in->now_ms);
}

static void input_take(struct member *m, const struct member_input *in)
{
    static const enum member_event_type events[] = {
        [MEMBER_STORE_OPEN] = MEMBER_EV_STORE_OPEN,
        [MEMBER_RANK_FAILED] = MEMBER_EV_RANK_FAILED,
        [MEMBER_RANKS_SUCCEEDED] = MEMBER_EV_RANKS_SUCCEEDED,
        [MEMBER_RANKS_STOPPED] = MEMBER_EV_RANKS_STOPPED,
        [MEMBER_RANKS_PARKED] = MEMBER_EV_RANKS_PARKED,
        [MEMBER_RANKS_SAVED] = MEMBER_EV_RANKS_SAVED,
        [MEMBER_RESTART] = MEMBER_EV_RESTART,
        [MEMBER_FIT] = MEMBER_EV_FIT,
        [MEMBER_UNFIT] = MEMBER_EV_UNFIT,
        [MEMBER_LEAVE] = MEMBER_EV_LEAVE,
        [MEMBER_END_JOB] = MEMBER_EV_END_JOB,
    };
    switch (in->type) {
    case MEMBER_LINK_UP:
        take_link_up(m, in);
        break;
    case MEMBER_LINK_DOWN:
        take_link_down(m, in);
        break;
    case MEMBER_MESSAGE:
        message_take(m, in);
        break;
    case MEMBER_COORDINATOR_LOST:
        take_vacancy(m, in);
        break;
    case MEMBER_LEASE:
        take_lease(m, in);
        break;
    case MEMBER_SUSPENDED:
        take_suspension(m, in->now_ms);
        break;
    case MEMBER_TIME:
        take_time(m, in->now_ms);
        break;
    default:
        feed(m, events[in->type], in, in->now_ms);
        break;
    }
}

static void begin_step(struct member *m)
{
    m->orders = (struct member_orders){.messages = m->messages};
}

static void end_step(struct member *m, uint64_t now_ms, struct member_orders *ret)
{
    if (m->is_over_full)
        break_link(m, now_ms, "too many unacknowledged messages for the coordinator");
    m->is_over_full = false;
    /* this process may have been suspended: a lease that is over would kill the ranks */
    if (m->owes_leased && (lease_end_ms(&m->lease) > now_ms || m->lease_is_off)) {
        m->owes_leased = m->needs_no_lease = false;
        m->orders.leased = true;
    }
    if (m->suspended_ms != 0 && m->is_welcome && m->lease.from_ms >= m->suspended_ms) {
        m->suspended_ms = 0;
        m->orders.resume = true;
        m->orders.resume_from_ms = m->lease.from_ms;
    }
    uint64_t lease_ms =
        m->lease_is_off || m->needs_no_lease ? CO_NEVER_MS : lease_end_ms(&m->lease);
    m->orders.set_lease = lease_ms != m->spawner_lease_ms;
    m->orders.lease_end_ms = m->spawner_lease_ms = lease_ms;
    *ret = m->orders;
}

void member_begin(struct member *m, uint64_t now_ms, struct member_orders *ret)
{
    begin_step(m);
    member_enter_first(m, now_ms);
    end_step(m, now_ms, ret);
}

/* The lease comes first: once it is over, the spawner has killed the ranks, whatever this input
 * reports, and the input must be read in that light. The orders are complete when the step returns.
 * They contain the lease's new end only if it has changed. */
void member_step(struct member *m, const struct member_input *in, struct member_orders *ret)
{
    begin_step(m);
    /* what the spawner killed when the lease was over neither failed nor heard the STOP */
    if ((m->holds || m->parks) && is_lapsed(m, in->now_ms))
        feed(m, MEMBER_EV_LEASE_EXPIRED, NULL, in->now_ms);
    input_take(m, in);
    end_step(m, in->now_ms, ret);
}

/* --- What the caller wants to know --- */

enum member_state member_get_state(const struct member *m)
{
    return m->state;
}

const struct member_place *member_get_place(const struct member *m)
{
    return &m->place;
}

const struct message_address *member_get_addresses(const struct member *m, uint32_t *ret_n)
{
    *ret_n = m->n_addresses;
    return m->addresses;
}

const struct message_progress *member_get_progress(const struct member *m)
{
    return m->has_progress ? &m->progress : NULL;
}

const char *member_stop_text(const struct member *m)
{
    return m->stop_text;
}

bool member_knows_stop(const struct member *m)
{
    return m->knows_end ||
           (m->stopped != MESSAGE_NO_GENERATION && m->stopped >= m->place.generation);
}

const char *member_get_note(const struct member *m)
{
    return m->note;
}

const struct member_end *member_get_end(const struct member *m)
{
    return &m->end;
}

/* --- Beginning and end --- */

int member_create(const struct member_limits *limits, const struct message_hello *hello,
                  const char *daemon, struct member **ret_member, struct co_error *err)
{
    struct member *m = calloc(1, sizeof *m);
    if (m == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    m->limits = *limits;
    m->hello = *hello;
    m->n_ranks = hello->n_local;
    snprintf(m->run_id, sizeof m->run_id, "%s", hello->run_id);
    snprintf(m->name, sizeof m->name, "%s", hello->name);
    m->end.n_restarts = -1;
    snprintf(m->daemon, sizeof m->daemon, "%s", daemon);
    if (hello->n_addresses > 0)
        memcpy(m->own_addresses, hello->addresses, hello->n_addresses * sizeof *hello->addresses);
    m->hello.run_id = m->run_id;
    m->hello.name = m->name;
    snprintf(m->domain, sizeof m->domain, "%s", hello->domain != NULL ? hello->domain : "");
    m->hello.domain = m->domain;
    m->hello.addresses = m->own_addresses;
    m->place.generation = m->stopped = MESSAGE_NO_GENERATION;
    m->spawner_lease_ms = m->connect_at_ms = m->vacant_ms = CO_NEVER_MS;
    *ret_member = m;
    return 0;
}

void member_destroy(struct member *m)
{
    if (m == NULL)
        return;
    free(m->addresses);
    free(m);
}
