/* member.c - the rules: the table of states, its conditions and actions.
 *
 * Read member_step() (member_input.c) first, then the table, then member_apply(). An input becomes
 * an event; the first row of the table that has the state and the event, and whose condition holds,
 * gives the action and the next state. An action leaves orders for the caller: messages,
 * ranks to start or stop, the end. No other code writes the state. */
#include "member_priv.h"

#include "common/clock.h"
#include "common/machine.h"

#include <inttypes.h>
#include <stdio.h>

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
    m->is_linked = m->is_welcome = m->is_connecting = m->needs_no_lease = false;
}

/* A rank that the spawner has killed is dead, whatever the roster answers later. While no rank
 * runs, the lease protects nothing. */
static uint64_t lapse_ms(const struct member *m, uint64_t seek_ms)
{
    if (m->lease_is_off || m->needs_no_lease || m->kills || m->lease.keep_alive_ms == 0)
        return CO_NEVER_MS;
    if (m->holds || m->parks)
        return m->spawner_lease_ms;
    if (m->state != MEMBER_WAITING)
        return CO_NEVER_MS;
    uint64_t end_ms = m->heard_ms + (m->lease.lease_ms > seek_ms ? m->lease.lease_ms : seek_ms);
    return end_ms > m->lease.extended_ms ? end_ms : m->lease.extended_ms;
}

uint64_t member_lapse_ms(const struct member *m)
{
    return lapse_ms(m, m->seek_ms);
}

/* Nothing runs, so the silence of a link ends only the link: another one may be answered. */
uint64_t member_deaf_ms(const struct member *m)
{
    if (m->state != MEMBER_WAITING || !m->is_linked || m->seek_ms == 0 ||
        lapse_ms(m, 0) == CO_NEVER_MS)
        return CO_NEVER_MS;
    return (m->is_welcome ? m->heard_ms : m->lease.last_sent_ms) + m->lease.lease_ms;
}

uint64_t member_seek_end_ms(const struct member *m)
{
    return m->state == MEMBER_WAITING && !m->is_welcome ? member_lapse_ms(m) : CO_NEVER_MS;
}

/* --- Messages to the roster --- */

struct message *member_send(struct member *m, enum message_type type, uint32_t generation)
{
    struct message *out = &m->messages[m->orders.n_messages];
    if (m->orders.n_messages < MEMBER_MAX_MESSAGES)
        m->orders.n_messages++;
    else
        m->is_over_full = true;
    *out = (struct message){.type = type, .generation = generation};
    return out;
}

/* The generation of which this node still has ranks, or has reported STOPPED. Not one in which it
 * was lost: a roster that does not know it may belong to another run of the job. */
static struct message_was find_was(const struct member *m, uint64_t now_ms)
{
    bool has_stopped = member_has_reported(m, REPORT_STOPPED) && m->stopped == m->place.generation;
    if (m->place.generation == MESSAGE_NO_GENERATION || m->kills || lapse_ms(m, 0) <= now_ms ||
        !(m->holds || m->parks || has_stopped))
        return (struct message_was){.is_known = false};
    return (struct message_was){
        .is_known = true, .generation = m->place.generation, .place = m->place.place};
}

void member_send_hello(struct member *m, uint64_t now_ms)
{
    struct message *out = member_send(m, MESSAGE_HELLO, MESSAGE_NO_GENERATION);
    out->hello = m->hello;
    out->hello.sent_ms = now_ms;
    out->hello.resumes = m->holds || m->parks ? m->place.generation : MESSAGE_NO_GENERATION;
    out->hello.returns = m->was_welcome;
    out->hello.was = find_was(m, now_ms);
    lease_sent(&m->lease, now_ms);
}

void member_send_health(struct member *m)
{
    if (m->health != MEMBER_HEALTH_UNKNOWN)
        member_send(m, MESSAGE_HEALTH, MESSAGE_NO_GENERATION)->health = (struct message_health){
            .fitness = m->health == MEMBER_HEALTH_FIT ? MESSAGE_FIT : MESSAGE_UNFIT,
            .node = "",
            .text = m->health_text};
}

/* To the roster, a node that has stopped is not fit before it reports that. Nothing ran here since
 * the last check if that is known. */
void member_send_stopped(struct member *m, uint32_t generation)
{
    member_send(m, MESSAGE_STOPPED, generation)->stopped =
        (struct message_stopped){.n_local = m->hello.n_local, .steps = m->steps};
    member_send_health(m);
}

static void send_report(struct member *m, enum member_report what)
{
    uint32_t generation = m->place.generation;
    switch (what) {
    case REPORT_READY:
        member_send(m, MESSAGE_READY, generation)->ready =
            (struct message_ready){.host = m->host,
                                   .port = m->place.place.port,
                                   .agent_store = m->place.place.agent_store,
                                   .relayed = m->place.place.relayed};
        break;
    case REPORT_FAILED:
        member_send(m, MESSAGE_FAILED, generation)->failed = m->failed;
        break;
    case REPORT_SUCCEEDED:
        member_send(m, MESSAGE_SUCCEEDED, generation);
        break;
    case REPORT_SAVED:
        member_send(m, MESSAGE_SAVED, generation);
        break;
    case REPORT_RESTART:
        member_send(m, MESSAGE_RESTART, generation);
        break;
    case REPORT_STOPPING:
        member_send(m, MESSAGE_STOPPING, m->stopped);
        break;
    case REPORT_STOPPED:
        member_send_stopped(m, m->stopped);
        break;
    case REPORT_LEAVE:
        member_send(m, MESSAGE_LEAVE, MESSAGE_NO_GENERATION)->leave.text = m->end_text;
        break;
    default:
        member_send(m, MESSAGE_END, MESSAGE_NO_GENERATION)->verdict =
            (struct message_verdict){.outcome = MESSAGE_ENDED,
                                     .exit_code = (uint8_t)m->end.exit_code,
                                     .rank = MESSAGE_NO_RANK,
                                     .node = m->name,
                                     .text = m->end_text};
        break;
    }
}

bool member_has_reported(const struct member *m, enum member_report what)
{
    for (uint32_t i = 0; i < m->n_reports; i++)
        if (m->reports[i] == what)
            return true;
    return false;
}

void member_report(struct member *m, enum member_report what)
{
    if (!member_has_reported(m, what))
        m->reports[m->n_reports++] = what;
    if (m->is_welcome)
        send_report(m, what);
}

/* The link that had them may have lost them. */
void member_report_again(struct member *m)
{
    for (uint32_t i = 0; i < m->n_reports; i++)
        send_report(m, m->reports[i]);
}

/* --- Conditions --- */

typedef bool condition(const struct member *m, const struct member_event *e);

static bool always(const struct member *m, const struct member_event *e)
{
    (void)m;
    (void)e;
    return true;
}

static bool may_retry(const struct member *m, const struct member_event *e)
{
    const struct message_refused *r = &e->message->refused;
    return r->again || (m->limits.awaits_rank && r->why == MESSAGE_REFUSED_NODE_RANK);
}

static bool leads(const struct member *m, const struct member_event *e)
{
    (void)m;
    return e->message->sealed.leads;
}

/* What waits on a slow link for longer than a lease is a place that may be gone already. */
static bool has_no_lease(const struct member *m, const struct member_event *e)
{
    return !m->needs_no_lease && lease_end_ms(&m->lease) <= e->now_ms;
}

/* The generation was made before the roster heard it. */
static bool is_unfit(const struct member *m, const struct member_event *e)
{
    (void)e;
    return m->health == MEMBER_HEALTH_UNFIT ||
           (m->hello.checks && m->health == MEMBER_HEALTH_UNKNOWN);
}

static bool hangs(const struct member *m, const struct member_event *e)
{
    (void)m;
    return e->input->hangs;
}

static bool knows_its_end(const struct member *m, const struct member_event *e)
{
    (void)e;
    return m->knows_end;
}

static bool was_lost(const struct member *m, const struct member_event *e)
{
    (void)e;
    return m->was_lost;
}

/* The roster has answered since: it never missed us. */
static bool has_a_lease_again(const struct member *m, const struct member_event *e)
{
    return m->is_welcome && (m->needs_no_lease || lease_end_ms(&m->lease) > e->now_ms);
}

static bool may_seek(const struct member *m, const struct member_event *e)
{
    return e->now_ms < m->heard_ms + m->seek_ms;
}

static bool has_reported_failure(const struct member *m, const struct member_event *e)
{
    (void)e;
    return member_has_reported(m, REPORT_FAILED);
}

static bool is_consequence(const struct member *m, const struct member_event *e)
{
    (void)m;
    return e->input->consequence;
}

/* --- What a row does, and what entering a state does --- */

typedef void action(struct member *m, const struct member_event *e);

static void nothing(struct member *m, const struct member_event *e)
{
    (void)m;
    (void)e;
}

static void begin_joining(struct member *m, const struct member_event *e)
{
    m->holds = m->parks = m->kills = m->was_lost = m->was_welcome = false;
    m->health = MEMBER_HEALTH_UNKNOWN;
    m->n_reports = 0;
    m->hello.n_local = m->n_ranks;
    m->lease = (struct lease){0};
    m->late_at_ms = e->now_ms + m->limits.start_timeout_ms;
    m->rejected_at_ms = CO_NEVER_MS;
    m->n_attempts = 0;
    member_connect_soon(m, e->now_ms);
}

/* Also drop the link: the roster would not answer another HELLO on it. */
static void retry_later(struct member *m, const struct member_event *e)
{
    snprintf(m->link_text, sizeof m->link_text, "%s", e->message->refused.text);
    m->was_refused = true;
    member_drop_link(m);
    m->connect_at_ms = e->now_ms + MEMBER_AGAIN_MS;
}

static void drop_link(struct member *m, const struct member_event *e)
{
    (void)e;
    member_drop_link(m);
}

/* --- The generation --- */

static void open_store(struct member *m, const struct member_event *e)
{
    (void)e;
    m->orders.open_store = true;
}

static void start_ranks(struct member *m, const struct member_event *e)
{
    (void)e;
    m->orders.start_ranks = true;
}

static void take_place(struct member *m, const struct member_event *e)
{
    m->place = (struct member_place){e->message->generation, e->message->sealed};
    snprintf(m->host, sizeof m->host, "%s", e->message->sealed.host);
    m->place.place.host = m->host;
    m->hello.n_local = e->message->sealed.n_local;
    m->holds = m->took_part = true;
    m->health = MEMBER_HEALTH_UNKNOWN;
    m->parks = false;
    m->has_progress = false;
    m->n_reports = 0;
    m->stop_text[0] = '\0';
}

static void report_ready(struct member *m, const struct member_event *e)
{
    snprintf(m->host, sizeof m->host, "%s", e->input->host);
    m->place.place.port = e->input->port;
    m->place.place.agent_store = e->input->agent_store;
    m->place.place.relayed = e->input->relayed;
    member_report(m, REPORT_READY);
}

static void report_failed(struct member *m, const struct member_event *e)
{
    const struct member_input *in = e->input;
    snprintf(m->failed_text, sizeof m->failed_text, "%s", in->text);
    m->failed = (struct message_failed){.rank = (uint32_t)in->rank,
                                        .exit_code = (uint8_t)in->exit_code,
                                        .final = in->final,
                                        .progressed = in->progressed,
                                        .consequence = in->consequence,
                                        .recovers = in->recovers,
                                        .text = m->failed_text};
    m->why = MESSAGE_WHY_FAILURE;
    member_report(m, REPORT_FAILED);
}

static void report_success(struct member *m, const struct member_event *e)
{
    (void)e;
    member_report(m, REPORT_SUCCEEDED);
}

static void report_saved(struct member *m, const struct member_event *e)
{
    (void)e;
    member_report(m, REPORT_SAVED);
}

static void report_restart(struct member *m, const struct member_event *e)
{
    (void)e;
    member_report(m, REPORT_RESTART);
}

static void note_health(struct member *m, const struct member_event *e)
{
    m->health = e->type == MEMBER_EV_FIT ? MEMBER_HEALTH_FIT : MEMBER_HEALTH_UNFIT;
    snprintf(m->health_text, sizeof m->health_text, "%s",
             m->health == MEMBER_HEALTH_UNFIT ? e->input->text : "");
}

static void report_health(struct member *m, const struct member_event *e)
{
    note_health(m, e);
    if (m->is_welcome)
        member_send_health(m);
}

static void request_checkpoint(struct member *m, const struct member_event *e)
{
    (void)e;
    m->orders.request_checkpoint = true;
}

static void note_stop(struct member *m, const struct member_event *e)
{
    snprintf(m->stop_text, sizeof m->stop_text, "%s", e->message->stop.text);
    m->why = e->message->stop.why;
    m->stopped = m->place.generation;
    member_report(m, REPORT_STOPPING);
}

/* A request for a restart asks for new processes, so the ranks do not park; nor do they on a node
 * that is left out. */
static void stop_ranks(struct member *m, const struct member_event *e)
{
    (void)e;
    m->orders.stop_ranks = true;
    m->orders.may_park =
        !m->knows_end && m->why != MESSAGE_WHY_RESTART && m->health != MEMBER_HEALTH_UNFIT;
    m->orders.why = m->why;
}

static void kill_ranks(struct member *m, const struct member_event *e)
{
    (void)e;
    m->kills = true;
    m->health = MEMBER_HEALTH_UNKNOWN; /* of parked ranks too: it is checked again */
    m->orders.kill_ranks = true;
}

/* The roster has nothing more to send to us. */
static void kill_unlinked(struct member *m, const struct member_event *e)
{
    member_drop_link(m);
    kill_ranks(m, e);
}

static void report_no_part(struct member *m, uint32_t n_next)
{
    m->holds = m->parks = m->kills = false;
    m->hello.n_local = n_next;
    if (m->stopped == MESSAGE_NO_GENERATION || m->stopped < m->place.generation) /* none declined */
        m->stopped = m->place.generation;
    member_report(m, REPORT_STOPPED);
}

static void report_stopped(struct member *m, const struct member_event *e)
{
    m->steps = e->input->steps;
    report_no_part(m, m->n_ranks);
}

/* To the roster nothing changes, except the number of ranks. */
static void report_parked(struct member *m, const struct member_event *e)
{
    m->steps = e->input->steps;
    report_no_part(m, e->input->n_ranks);
    m->parks = true;
}

static void decline(struct member *m, const struct member_event *e)
{
    m->stopped = e->message->generation;
    member_report(m, REPORT_STOPPED);
}

/* The roster made it before it knew that the lease of the parked ranks was over. The answer waits
 * until they are dead, so that the roster does not make the next generation while they die. */
static void decline_when_stopped(struct member *m, const struct member_event *e)
{
    m->stopped = e->message->generation;
}

static void note_loss(struct member *m, const struct member_event *e)
{
    (void)e;
    m->was_lost = true;
    member_drop_link(m);
}

/* --- The end --- */

static void end_session(struct member *m, const struct member_event *e)
{
    (void)e;
    m->connect_at_ms = CO_NEVER_MS;
    m->holds = m->parks = false;
    member_drop_link(m);
    m->orders.ended = true;
}

/* Set it once: what came first is it. The text of `end` is copied. */
static void set_end(struct member *m, struct member_end end, const char *text)
{
    if (m->knows_end)
        return;
    m->knows_end = true;
    m->end = end;
    m->end.n_restarts = -1;
    snprintf(m->end_text, sizeof m->end_text, "%s", text);
    snprintf(m->end_node, sizeof m->end_node, "%s", end.node != NULL ? end.node : "");
    m->end.text = m->end_text;
    m->end.node = m->end_node;
}

/* A job of a fixed number of nodes has had them without this one, most likely because it was
 * submitted twice. In an elastic job it was a spare. */
static bool was_not_needed(const struct member *m, const struct message_verdict *v)
{
    const struct message_terms *t = &m->hello.terms;
    return v->outcome == MESSAGE_WELL && !m->took_part && !m->limits.may_be_spare &&
           t->spares == 0 && t->min_nodes == t->max_nodes;
}

static void take_verdict(struct member *m, const struct member_event *e)
{
    const struct message_verdict *v = &e->message->verdict;
    const bool is_surplus = was_not_needed(m, v);
    char text[MESSAGE_TEXT_BYTES];
    snprintf(text, sizeof text,
             "%s was not needed: job '%s' succeeded on %" PRIu32
             " other nodes. Was it submitted twice with the same --rdzv-id? For a spare node, use "
             "--nnodes MIN:MAX",
             m->name, m->run_id, m->hello.terms.min_nodes);
    set_end(m,
            (struct member_end){.exit_code = is_surplus ? MEMBER_EXIT_MISSING : v->exit_code,
                                .by_roster = true,
                                .took_part = m->took_part,
                                .outcome = v->outcome,
                                .rank = v->rank,
                                .node = v->node},
            is_surplus ? text : v->text);
    m->end.n_restarts = v->n_restarts;
    m->why = v->outcome == MESSAGE_RANK_FAILED || v->outcome == MESSAGE_STUCK ? MESSAGE_WHY_FAILURE
                                                                              : MESSAGE_WHY_LEAVE;
    m->lease_is_off = true;
}

static void take_own_end(struct member *m, const struct member_event *e, enum member_report say)
{
    set_end(m,
            (struct member_end){.exit_code = e->input->exit_code,
                                .signal = e->input->signal,
                                .outcome = MESSAGE_ENDED,
                                .rank = MESSAGE_NO_RANK},
            e->input->text);
    m->why = MESSAGE_WHY_LEAVE;
    member_report(m, say);
}

static void report_leave(struct member *m, const struct member_event *e)
{
    take_own_end(m, e, REPORT_LEAVE);
}

static void report_end(struct member *m, const struct member_event *e)
{
    take_own_end(m, e, REPORT_END);
}

static void end_by_refusal(struct member *m, const struct member_event *e)
{
    set_end(m,
            (struct member_end){.exit_code = MEMBER_EXIT_CONFIG,
                                .outcome = MESSAGE_MISSING,
                                .rank = MESSAGE_NO_RANK},
            e->message->refused.text);
}

static void end_by_link(struct member *m, const struct member_event *e)
{
    set_end(m,
            (struct member_end){.exit_code = e->input->exit_code,
                                .outcome = MESSAGE_MISSING,
                                .rank = MESSAGE_NO_RANK},
            e->input->text);
}

static void end_timed_out(struct member *m, const struct member_event *e)
{
    char text[MESSAGE_TEXT_BYTES];
    const bool was_rejected = m->rejected_at_ms != CO_NEVER_MS;
    (void)e;
    snprintf(text, sizeof text,
             "timed out after %" PRIu64 " s waiting for the rendezvous endpoint %s: %.600s%s",
             m->limits.start_timeout_ms / 1000, m->daemon,
             m->link_text[0] != '\0' ? m->link_text : "no answer",
             m->was_refused || was_rejected
                 ? ""
                 : "; check that ddprun or ddp-rendezvous runs there and that this node "
                   "can reach the address");
    set_end(m,
            (struct member_end){.exit_code = was_rejected ? m->rejected_code : MEMBER_EXIT_MISSING,
                                .outcome = MESSAGE_MISSING,
                                .rank = MESSAGE_NO_RANK},
            text);
}

static void end_without_lease(struct member *m, const struct member_event *e)
{
    char text[MESSAGE_TEXT_BYTES];
    snprintf(text, sizeof text,
             "lost contact with the rendezvous endpoint %s: %.600s%sno reply for %" PRIu64
             " ms; stopping the ranks of this node; check that the endpoint's host runs and is "
             "reachable",
             m->daemon, m->is_linked ? "" : m->link_text, m->is_linked ? "" : "; ",
             e->now_ms - m->heard_ms);
    set_end(m,
            (struct member_end){.exit_code = MEMBER_EXIT_TOO_FEW,
                                .outcome = MESSAGE_TOO_FEW,
                                .rank = MESSAGE_NO_RANK},
            text);
}

/* Something of ours hangs in the kernel: this node is of no use to the job any more. */
static void leave_with_hung_ranks(struct member *m, const struct member_event *e)
{
    (void)e;
    set_end(m,
            (struct member_end){.exit_code = MEMBER_EXIT_INTERNAL,
                                .outcome = MESSAGE_ENDED,
                                .rank = MESSAGE_NO_RANK},
            "processes of this node survived SIGKILL");
    member_report(m, REPORT_LEAVE);
}

/* --- The table: read from the top, the first row that fits is it --- */

struct row {
    struct co_machine_row at;
    condition *only_if;
    action *does;
};

#define ROW(in, on, only_if, does, then)                                                           \
    {                                                                                              \
        {MEMBER_##in, MEMBER_EV_##on, MEMBER_##then, #only_if, #does}, only_if, does               \
    }

/* clang-format off */
static const struct row rows[] = {
    /*  in            on                  only if            does                then */
    ROW(JOINING,      WELCOME,            always,            nothing,            WAITING),
    ROW(JOINING,      REFUSED,            may_retry,         retry_later,        JOINING),
    ROW(JOINING,      REFUSED,            always,            end_by_refusal,     ENDED),
    ROW(JOINING,      VERDICT,            always,            take_verdict,       ENDED),
    ROW(JOINING,      LINK_REFUSED,       always,            end_by_link,        ENDED),
    ROW(JOINING,      TIMED_OUT,          always,            end_timed_out,      ENDED),
    ROW(JOINING,      FIT,                always,            report_health,      JOINING),
    ROW(JOINING,      UNFIT,              always,            report_health,      JOINING),
    ROW(JOINING,      LEAVE,              always,            report_leave,       ENDED),
    ROW(JOINING,      END_JOB,            always,            report_end,         ENDED),

    ROW(WAITING,      WELCOME,            always,            nothing,            WAITING),
    ROW(WAITING,      REFUSED,            may_retry,         drop_link,          JOINING),
    ROW(WAITING,      REFUSED,            always,            end_by_refusal,     ENDED),
    ROW(WAITING,      SEALED,             has_no_lease,      decline,            WAITING),
    ROW(WAITING,      SEALED,             is_unfit,          decline,            WAITING),
    ROW(WAITING,      SEALED,             leads,             take_place,         OPENING_STORE),
    ROW(WAITING,      SEALED,             always,            take_place,         RUNNING),
    ROW(WAITING,      VERDICT,            always,            take_verdict,       ENDED),
    ROW(WAITING,      FIT,                always,            report_health,      WAITING),
    ROW(WAITING,      UNFIT,              always,            report_health,      WAITING),
    ROW(WAITING,      LEAVE,              always,            report_leave,       ENDED),
    ROW(WAITING,      END_JOB,            always,            report_end,         ENDED),
    ROW(WAITING,      LEASE_EXPIRED,      always,            end_without_lease,  ENDED),

    ROW(PARKED,       WELCOME,            always,            nothing,            PARKED),
    ROW(PARKED,       REFUSED,            always,            note_loss,          KILLING),
    ROW(PARKED,       SEALED,             leads,             take_place,         OPENING_STORE),
    ROW(PARKED,       SEALED,             always,            take_place,         RUNNING),
    ROW(PARKED,       RANKS_PARKED,       always,            report_parked,      PARKED),
    ROW(PARKED,       VERDICT,            always,            take_verdict,       ENDING),
    ROW(PARKED,       FIT,                always,            report_health,      PARKED),
    ROW(PARKED,       UNFIT,              always,            report_health,      STOPPING),
    ROW(PARKED,       LEAVE,              always,            report_leave,       ENDING),
    ROW(PARKED,       END_JOB,            always,            report_end,         ENDING),
    ROW(PARKED,       LEASE_EXPIRED,      always,            nothing,            KILLING),

    ROW(OPENING_STORE, WELCOME,           always,            nothing,            OPENING_STORE),
    ROW(OPENING_STORE, REFUSED,           always,            note_loss,          KILLING),
    ROW(OPENING_STORE, STORE_OPEN,        always,            report_ready,       RUNNING),
    ROW(OPENING_STORE, RANK_FAILED,       always,            report_failed,      STOPPING),
    ROW(OPENING_STORE, STOP,              always,            note_stop,          STOPPING),
    ROW(OPENING_STORE, VERDICT,           always,            take_verdict,       ENDING),
    ROW(OPENING_STORE, LEAVE,             always,            report_leave,       ENDING),
    ROW(OPENING_STORE, END_JOB,           always,            report_end,         ENDING),
    ROW(OPENING_STORE, LEASE_EXPIRED,     always,            nothing,            KILLING),

    ROW(RUNNING,      WELCOME,            always,            nothing,            RUNNING),
    ROW(RUNNING,      REFUSED,            always,            note_loss,          KILLING),
    ROW(RUNNING,      RANK_FAILED,        always,            report_failed,      STOPPING),
    ROW(RUNNING,      RANKS_SUCCEEDED,    always,            report_success,     RUNNING),
    ROW(RUNNING,      RANKS_STOPPED,      always,            report_stopped,     WAITING),
    ROW(RUNNING,      CHECKPOINT_REQUEST, always,            request_checkpoint, RUNNING),
    ROW(RUNNING,      RANKS_SAVED,        always,            report_saved,       RUNNING),
    ROW(RUNNING,      RESTART,            always,            report_restart,     RUNNING),
    ROW(RUNNING,      STOP,               always,            note_stop,          STOPPING),
    ROW(RUNNING,      VERDICT,            always,            take_verdict,       ENDING),
    ROW(RUNNING,      LEAVE,              always,            report_leave,       ENDING),
    ROW(RUNNING,      END_JOB,            always,            report_end,         ENDING),
    ROW(RUNNING,      LEASE_EXPIRED,      always,            nothing,            KILLING),

    ROW(STOPPING,     WELCOME,            always,            nothing,            STOPPING),
    ROW(STOPPING,     REFUSED,            always,            note_loss,          KILLING),
    ROW(STOPPING,     STOP,               always,            note_stop,          STOPPING),
    ROW(STOPPING,     RANK_FAILED,        has_reported_failure, report_failed,   STOPPING),
    ROW(STOPPING,     RANK_FAILED,        is_consequence,    nothing,            STOPPING),
    ROW(STOPPING,     RANK_FAILED,        always,            report_failed,      STOPPING),
    ROW(STOPPING,     RANKS_STOPPED,      hangs,             leave_with_hung_ranks, ENDED),
    ROW(STOPPING,     RANKS_STOPPED,      always,            report_stopped,     WAITING),
    ROW(STOPPING,     RANKS_PARKED,       always,            report_parked,      PARKED),
    ROW(STOPPING,     VERDICT,            always,            take_verdict,       ENDING),
    ROW(STOPPING,     LEAVE,              always,            report_leave,       ENDING),
    ROW(STOPPING,     END_JOB,            always,            report_end,         ENDING),
    ROW(STOPPING,     LEASE_EXPIRED,      always,            nothing,            KILLING),

    ROW(KILLING,      WELCOME,            always,            nothing,            KILLING),
    ROW(KILLING,      REFUSED,            always,            note_loss,          KILLING),
    ROW(KILLING,      SEALED,             always,            decline_when_stopped, KILLING),
    ROW(KILLING,      VERDICT,            always,            take_verdict,       KILLING),
    ROW(KILLING,      LEAVE,              always,            report_leave,       KILLING),
    ROW(KILLING,      END_JOB,            always,            report_end,         KILLING),
    ROW(KILLING,      RANKS_STOPPED,      knows_its_end,     report_stopped,     ENDED),
    ROW(KILLING,      RANKS_STOPPED,      hangs,             leave_with_hung_ranks, ENDED),
    ROW(KILLING,      RANKS_STOPPED,      was_lost,          nothing,            JOINING),
    ROW(KILLING,      RANKS_STOPPED,      has_a_lease_again, report_stopped,     WAITING),
    ROW(KILLING,      RANKS_STOPPED,      may_seek,          report_stopped,     WAITING),
    ROW(KILLING,      RANKS_STOPPED,      always,            end_without_lease,  ENDED),

    ROW(ENDING,       WELCOME,            always,            nothing,            ENDING),
    ROW(ENDING,       REFUSED,            always,            kill_unlinked,      ENDING),
    ROW(ENDING,       STOP,               always,            note_stop,          ENDING),
    ROW(ENDING,       VERDICT,            always,            take_verdict,       ENDING),
    ROW(ENDING,       RANKS_STOPPED,      always,            report_stopped,     ENDED),
    ROW(ENDING,       LEASE_EXPIRED,      always,            kill_ranks,         ENDING),
};

/* Pairs that cannot happen, or that mean nothing when they do. */
static const struct co_machine_pair ignored[] = {
#define IGNORE(in, on) {MEMBER_##in, MEMBER_EV_##on}
    /* a link that cannot be had any more ends a job that runs by its lease, and no sooner */
    IGNORE(WAITING, LINK_REFUSED), IGNORE(PARKED, LINK_REFUSED),
    IGNORE(OPENING_STORE, LINK_REFUSED), IGNORE(RUNNING, LINK_REFUSED),
    IGNORE(STOPPING, LINK_REFUSED), IGNORE(KILLING, LINK_REFUSED), IGNORE(ENDING, LINK_REFUSED),
    /* only a member that joins can time out, only one that the roster knows has a lease */
    IGNORE(WAITING, TIMED_OUT), IGNORE(PARKED, TIMED_OUT), IGNORE(OPENING_STORE, TIMED_OUT),
    IGNORE(RUNNING, TIMED_OUT), IGNORE(STOPPING, TIMED_OUT), IGNORE(KILLING, TIMED_OUT),
    IGNORE(ENDING, TIMED_OUT), IGNORE(JOINING, LEASE_EXPIRED), IGNORE(KILLING, LEASE_EXPIRED),
    /* about a generation that this node does not have, or already has */
    IGNORE(JOINING, SEALED), IGNORE(JOINING, STOP), IGNORE(JOINING, CHECKPOINT_REQUEST),
    IGNORE(WAITING, STOP), IGNORE(WAITING, CHECKPOINT_REQUEST), IGNORE(PARKED, STOP),
    IGNORE(PARKED, CHECKPOINT_REQUEST), IGNORE(OPENING_STORE, SEALED), IGNORE(RUNNING, SEALED),
    IGNORE(STOPPING, SEALED), IGNORE(ENDING, SEALED),
    /* there are no ranks */
    IGNORE(JOINING, STORE_OPEN), IGNORE(JOINING, RANK_FAILED), IGNORE(JOINING, RANKS_SUCCEEDED),
    IGNORE(JOINING, RANKS_STOPPED), IGNORE(JOINING, RANKS_SAVED), IGNORE(WAITING, STORE_OPEN),
    IGNORE(WAITING, RANK_FAILED), IGNORE(WAITING, RANKS_SUCCEEDED), IGNORE(WAITING, RANKS_STOPPED),
    IGNORE(WAITING, RANKS_SAVED), IGNORE(JOINING, RANKS_PARKED), IGNORE(WAITING, RANKS_PARKED),
    IGNORE(OPENING_STORE, RANKS_PARKED), IGNORE(OPENING_STORE, RANKS_SUCCEEDED),
    IGNORE(OPENING_STORE, RANKS_STOPPED), IGNORE(OPENING_STORE, CHECKPOINT_REQUEST),
    IGNORE(OPENING_STORE, RANKS_SAVED), IGNORE(RUNNING, STORE_OPEN),
    /* they take part in nothing, and how one of them ends is known when the next generation has
     * begun */
    IGNORE(PARKED, STORE_OPEN), IGNORE(PARKED, RANK_FAILED), IGNORE(PARKED, RANKS_SUCCEEDED),
    IGNORE(PARKED, RANKS_STOPPED), IGNORE(PARKED, RANKS_SAVED),
    /* parked is what was to be stopped, and only where a generation may follow */
    IGNORE(RUNNING, RANKS_PARKED), IGNORE(KILLING, RANKS_PARKED), IGNORE(ENDING, RANKS_PARKED),
    IGNORE(ENDED, RANKS_PARKED),
    /* it begins too late to matter, or is repeated after the generation */
    IGNORE(OPENING_STORE, FIT), IGNORE(OPENING_STORE, UNFIT), IGNORE(RUNNING, FIT),
    IGNORE(RUNNING, UNFIT), IGNORE(STOPPING, FIT), IGNORE(STOPPING, UNFIT), IGNORE(KILLING, FIT),
    IGNORE(KILLING, UNFIT), IGNORE(ENDING, FIT), IGNORE(ENDING, UNFIT), IGNORE(ENDED, FIT),
    IGNORE(ENDED, UNFIT),
    /* there is nothing to be started again, or it will be as it is */
    IGNORE(JOINING, RESTART), IGNORE(WAITING, RESTART), IGNORE(PARKED, RESTART),
    IGNORE(OPENING_STORE, RESTART), IGNORE(STOPPING, RESTART), IGNORE(KILLING, RESTART),
    IGNORE(ENDING, RESTART), IGNORE(ENDED, RESTART),
    /* the ranks are being stopped: how they exit means nothing */
    IGNORE(STOPPING, STORE_OPEN), IGNORE(STOPPING, RANKS_SUCCEEDED), IGNORE(STOPPING, RANKS_SAVED),
    IGNORE(STOPPING, CHECKPOINT_REQUEST), IGNORE(KILLING, STORE_OPEN), IGNORE(KILLING, RANK_FAILED),
    IGNORE(KILLING, RANKS_SUCCEEDED), IGNORE(KILLING, RANKS_SAVED),
    IGNORE(KILLING, CHECKPOINT_REQUEST), IGNORE(KILLING, STOP), IGNORE(ENDING, STORE_OPEN),
    IGNORE(ENDING, RANK_FAILED), IGNORE(ENDING, RANKS_SUCCEEDED), IGNORE(ENDING, RANKS_SAVED),
    IGNORE(ENDING, CHECKPOINT_REQUEST),
    /* it ends already: a second signal is the supervisor's business */
    IGNORE(ENDING, LEAVE), IGNORE(ENDING, END_JOB), IGNORE(ENDED, LINK_REFUSED),
    IGNORE(ENDED, WELCOME), IGNORE(ENDED, REFUSED), IGNORE(ENDED, SEALED), IGNORE(ENDED, STOP),
    IGNORE(ENDED, CHECKPOINT_REQUEST), IGNORE(ENDED, VERDICT), IGNORE(ENDED, STORE_OPEN),
    IGNORE(ENDED, RANK_FAILED), IGNORE(ENDED, RANKS_SUCCEEDED), IGNORE(ENDED, RANKS_STOPPED),
    IGNORE(ENDED, RANKS_SAVED), IGNORE(ENDED, LEAVE), IGNORE(ENDED, END_JOB),
    IGNORE(ENDED, LEASE_EXPIRED), IGNORE(ENDED, TIMED_OUT),
#undef IGNORE
};
/* clang-format on */

static const struct co_machine_state states[] = {MEMBER_STATES(CO_MACHINE_STATE)};
static action *const entries[] = {MEMBER_STATES(CO_MACHINE_ENTRY)};
static const char *const event_names[] = {MEMBER_EVENTS(CO_MACHINE_EVENT)};

const struct co_machine member_machine =
    CO_MACHINE("member", "rendezvous/membership/member.c", states, event_names, rows, ignored);

/* The only place that writes the state. */
static void state_enter(struct member *m, enum member_state state, const struct member_event *e)
{
    m->state = state;
    entries[state](m, e);
}

void member_enter_first(struct member *m, uint64_t now_ms)
{
    state_enter(m, MEMBER_JOINING,
                &(struct member_event){.type = MEMBER_EV_TIMED_OUT, .now_ms = now_ms});
}

void member_apply(struct member *m, const struct member_event *e)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        if (row->at.in != m->state || row->at.on != e->type || !row->only_if(m, e))
            continue;
        row->does(m, e);
        if (row->at.then != m->state)
            state_enter(m, row->at.then, e);
        return;
    }
}

const char *member_state_name(enum member_state state)
{
    return states[state].name;
}
