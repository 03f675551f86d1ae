/* roster_send.c - messages to nodes, as actions; what is waited for; answers to the caller. Decides
 * nothing. */
#include "roster_priv.h"

#include "common/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Names are searched once in this time, not for each node that asks. */
enum { PROGRESS_FRESH_MS = 100 };

static struct roster_action *add_action(struct roster *r, enum roster_action_type type,
                                        uint64_t link)
{
    struct roster_action *a = &r->unsent; /* without memory: a link that misses it breaks later */
    if (roster_reserve_action(r) == 0)
        a = &r->actions[r->n_actions++];
    *a = (struct roster_action){.type = type, .link = link};
    return a;
}

/* A node that is away receives it when it connects again: roster_send_again(). Then what this
 * returns is not sent. */
static struct message *add_message(struct roster *r, uint64_t link, enum message_type type,
                                   uint32_t generation)
{
    struct roster_action *a = &r->unsent;
    if (link != 0)
        a = add_action(r, ROSTER_SEND, link);
    a->message.type = type;
    a->message.generation = generation;
    return &a->message;
}

void roster_add_change(struct roster *r, enum roster_state from)
{
    struct roster_action *a = add_action(r, ROSTER_CHANGED, 0);
    a->from = from;
    a->to = r->state;
}

void roster_send_close(struct roster *r, uint64_t link)
{
    if (link != 0)
        add_action(r, ROSTER_CLOSE, link);
}

void roster_send_welcome(struct roster *r, uint32_t slot, const struct message_hello *hello,
                         bool resumed, bool replaced)
{
    add_message(r, r->nodes[slot].link, MESSAGE_WELCOME, MESSAGE_NO_GENERATION)->welcome =
        (struct message_welcome){.sent_ms = hello->sent_ms,
                                 .keep_alive_ms = r->limits.keep_alive_ms,
                                 .lease_ms = r->limits.lease_ms,
                                 .resumed = resumed,
                                 .note = r->note,
                                 .replaced = replaced,
                                 .elects = r->limits.confirm_ms > 0};
}

void roster_send_refused(struct roster *r, uint64_t link, enum message_refusal why, bool again,
                         const char *text)
{
    add_message(r, link, MESSAGE_REFUSED, MESSAGE_NO_GENERATION)->refused =
        (struct message_refused){.why = why, .again = again, .text = text};
    roster_send_close(r, link);
}

/* --- The generation --- */

void roster_send_place(struct roster *r, uint32_t slot)
{
    const struct roster_node *n = &r->nodes[slot];
    bool leads = slot == r->leader;
    add_message(r, n->link, MESSAGE_SEALED, r->generation)->sealed =
        (struct message_place){.n_nodes = r->n_members,
                               .node_index = (uint32_t)n->seat,
                               .world_size = r->world_size,
                               .first_rank = n->first_rank,
                               .n_local = n->n_local,
                               .n_restarts = roster_n_restarts(r),
                               .term = r->term,
                               .leads = leads,
                               .agent_store = r->ready && r->agent_store,
                               .relayed = r->ready && r->relayed,
                               .host = r->ready ? r->host : "",
                               .port = r->ready ? r->port : 0};
}

/* The addresses come first: the store is opened with all of them known. */
void roster_send_leader(struct roster *r)
{
    uint64_t link = r->nodes[r->leader].link;
    uint32_t first = 0;
    do {
        uint32_t n = r->n_addresses - first;
        if (n > MESSAGE_MAX_MEMBERS)
            n = MESSAGE_MAX_MEMBERS;
        add_message(r, link, MESSAGE_MEMBERS, r->generation)->members =
            (struct message_members){.n_all = r->n_addresses,
                                     .first = first,
                                     .n = n,
                                     .addresses = n > 0 ? &r->addresses[first] : NULL};
        first += n;
    } while (first < r->n_addresses);
    roster_send_place(r, r->leader);
}

void roster_send_checkpoint_request(struct roster *r, uint32_t slot)
{
    add_message(r, r->nodes[slot].link, MESSAGE_CHECKPOINT_REQUEST, r->generation);
}

void roster_send_stop(struct roster *r, uint32_t slot)
{
    add_message(r, r->nodes[slot].link, MESSAGE_STOP, r->generation)->stop =
        (struct message_stop){.why = r->cause.why, .text = r->stop_text};
}

void roster_send_verdict(struct roster *r, uint64_t link)
{
    add_message(r, link, MESSAGE_VERDICT, MESSAGE_NO_GENERATION)->verdict = r->verdict;
}

static void send_health(struct roster *r, uint32_t but, const struct message_health *health)
{
    r->n_health_changes++;
    for (uint32_t i = 0; i < r->n_slots; i++)
        if (i != but && roster_is_linked(&r->nodes[i]))
            add_message(r, r->nodes[i].link, MESSAGE_HEALTH, MESSAGE_NO_GENERATION)->health =
                *health;
}

void roster_send_health(struct roster *r, uint32_t slot, enum message_fitness fitness)
{
    const struct roster_node *n = &r->nodes[slot];
    send_health(r, slot,
                &(struct message_health){.fitness = fitness,
                                         .node = n->name,
                                         .text = fitness == MESSAGE_UNFIT ? n->unfit : ""});
}

void roster_send_gone(struct roster *r, uint32_t slot)
{
    const struct roster_node *n = &r->nodes[slot];
    if (n->unfit[0] == '\0' || r->n_gone == ROSTER_MAX_GONE)
        return;
    char *name = r->gone[r->n_gone++];
    memcpy(name, n->name, sizeof r->gone[0]);
    send_health(r, slot,
                &(struct message_health){.fitness = MESSAGE_FIT_GONE, .node = name, .text = ""});
}

void roster_send_unfit(struct roster *r, uint32_t slot)
{
    for (uint32_t i = 0; r->had_unfit && i < r->n_slots; i++)
        if (i != slot && r->nodes[i].used && r->nodes[i].unfit[0] != '\0')
            add_message(r, r->nodes[slot].link, MESSAGE_HEALTH, MESSAGE_NO_GENERATION)->health =
                (struct message_health){
                    .fitness = MESSAGE_UNFIT, .node = r->nodes[i].name, .text = r->nodes[i].unfit};
}

void roster_send_excluded(struct roster *r, uint64_t link, const struct roster_past_excluded *who)
{
    if (r->terms.exclude_window_ms > 0)
        snprintf(r->farewell, sizeof r->farewell,
                 "node %s excluded: %" PRIu32 " rank failures within %" PRIu64
                 " s (--exclude-node-after); continuing without it",
                 who->name, r->terms.exclude_after, r->terms.exclude_window_ms / 1000);
    else
        snprintf(r->farewell, sizeof r->farewell,
                 "node %s excluded: %" PRIu32
                 " rank failures (--exclude-node-after); continuing without it",
                 who->name, r->terms.exclude_after);
    add_message(r, link, MESSAGE_VERDICT, MESSAGE_NO_GENERATION)->verdict =
        (struct message_verdict){.outcome = MESSAGE_EXCLUDED,
                                 .exit_code = who->exit_code,
                                 .rank = MESSAGE_NO_RANK,
                                 .node = who->name,
                                 .text = r->farewell,
                                 .n_restarts = roster_n_restarts(r)};
    roster_send_close(r, link);
}

void roster_send_again(struct roster *r, uint32_t slot)
{
    const struct roster_node *n = &r->nodes[slot];
    if (r->state == ROSTER_CLOSED) {
        if (r->has_informed_all)
            roster_send_verdict(r, n->link);
    } else if (r->state == ROSTER_RUNNING && n->part == PART_ASSIGNED) {
        if (slot == r->leader)
            roster_send_leader(r);
        else
            roster_send_place(r, slot);
        if (r->pending)
            roster_send_checkpoint_request(r, slot);
    } else if (r->state == ROSTER_STOPPING &&
               (n->part == PART_ASSIGNED || n->part == PART_HALTING)) {
        roster_send_stop(r, slot);
    }
}

/* --- What is waited for --- */

static void add_name(struct roster *r, const char *name)
{
    struct message_progress *p = &r->progress;
    p->n_all_names++;
    if (p->n_names == MESSAGE_MAX_NAMES)
        return;
    snprintf(r->progress_names[p->n_names], sizeof r->progress_names[0], "%s", name);
    p->names[p->n_names] = r->progress_names[p->n_names];
    p->n_names++;
}

/* Those of the host file that are not known; without one, the node ranks that no node has. */
static void name_missing(struct roster *r)
{
    for (uint32_t i = 0; i < r->n_expected; i++)
        if (r->came[i] == 0)
            add_name(r, r->expected[i]);
    if (r->n_expected > 0 || r->by_node_rank.n_used == 0)
        return;
    for (uint32_t i = 0; i < r->terms.min_nodes; i++) {
        char rank[32];
        if (roster_by_node_rank(r, (int32_t)i) != ROSTER_NO_SLOT)
            continue;
        snprintf(rank, sizeof rank, "--node-rank=%" PRIu32, i);
        add_name(r, rank);
    }
}

static void name_busy(struct roster *r)
{
    for (uint32_t i = 0; i < r->n_slots; i++)
        if (r->nodes[i].part == PART_ASSIGNED || r->nodes[i].part == PART_HALTING)
            add_name(r, r->nodes[i].name);
}

/* Domains with nodes that make no whole segment: "rack7(1/2)". */
static void name_rest(struct roster *r)
{
    for (uint32_t i = 0; i < r->n_domains; i++) {
        const struct roster_domain *d = &r->domains[i];
        char text[MESSAGE_NAME_BYTES];
        const uint32_t rest = r->terms.segment > 0 ? d->n[COUNT_HERE] % r->terms.segment : 0;
        if (d->n_nodes == 0 || rest == 0)
            continue;
        snprintf(text, sizeof text, "%.100s(%" PRIu32 "/%" PRIu32 ")", d->name, rest,
                 r->terms.segment);
        add_name(r, text);
    }
}

/* Nodes that have joined, and that a generation cannot have. */
static void name_unfit(struct roster *r)
{
    for (uint32_t i = 0; i < r->n_slots; i++) {
        char name[MESSAGE_NAME_BYTES + 16];
        snprintf(name, sizeof name, "%s(unhealthy)", r->nodes[i].name);
        if (r->nodes[i].used && r->nodes[i].health == ROSTER_UNFIT)
            add_name(r, name);
    }
}

static void name_unchecked(struct roster *r)
{
    for (uint32_t i = 0; i < r->n_slots; i++)
        if (r->nodes[i].used && r->nodes[i].health == ROSTER_UNCHECKED)
            add_name(r, r->nodes[i].name);
}

static enum message_wait find_wait(const struct roster *r)
{
    switch (r->state) {
    case ROSTER_GATHERING:
        return MESSAGE_WAIT_NODES;
    case ROSTER_OPEN:
        return MESSAGE_WAIT_WINDOW;
    case ROSTER_RUNNING:
        return !r->ready    ? MESSAGE_WAIT_STORE
               : r->pending ? MESSAGE_WAIT_CHECKPOINT
                            : MESSAGE_WAIT_PLACE;
    case ROSTER_STOPPING:
        return roster_n_busy(r) > 0 ? MESSAGE_WAIT_STOP
               : r->n_unchecked > 0 ? MESSAGE_WAIT_HEALTH
                                    : MESSAGE_WAIT_PAUSE;
    default:
        return MESSAGE_WAIT_NOTHING;
    }
}

static void refresh_progress(struct roster *r, uint64_t now_ms)
{
    r->progress = (struct message_progress){.wait = find_wait(r)};
    r->progress_ms = now_ms;
    r->progress_stale = false;
    if (r->progress.wait == MESSAGE_WAIT_NODES) {
        name_unfit(r);
        name_rest(r);
        name_missing(r);
    } else if (r->progress.wait == MESSAGE_WAIT_HEALTH)
        name_unchecked(r);
    else if (r->progress.wait == MESSAGE_WAIT_STOP)
        name_busy(r);
    else if (r->progress.wait == MESSAGE_WAIT_STORE && r->leader != ROSTER_NO_SLOT)
        add_name(r, r->nodes[r->leader].name);
}

static const struct message_progress *find_progress(struct roster *r, uint64_t now_ms)
{
    struct message_progress *p = &r->progress;
    if (p->wait != find_wait(r) ||
        (r->progress_stale && now_ms - r->progress_ms >= PROGRESS_FRESH_MS))
        refresh_progress(r, now_ms);
    p->n_here = roster_n_usable(r, COUNT_HERE);
    p->n_wanted = r->state == ROSTER_OPEN ? r->terms.max_nodes : r->terms.min_nodes;
    p->elapsed_ms =
        now_ms - (p->wait == MESSAGE_WAIT_CHECKPOINT ? r->pending_since_ms : r->entered_ms);
    p->left_ms = r->deadline_ms == CO_NEVER_MS ? UINT64_MAX
                 : r->deadline_ms > now_ms     ? r->deadline_ms - now_ms
                                               : 0;
    return p;
}

void roster_send_lease(struct roster *r, uint32_t slot, uint64_t sent_ms, uint64_t now_ms)
{
    const struct roster_node *n = &r->nodes[slot];
    bool waits =
        r->state != ROSTER_CLOSED && (n->part != PART_ASSIGNED || r->state != ROSTER_RUNNING);
    add_message(r, n->link, MESSAGE_LEASE, MESSAGE_NO_GENERATION)->lease = (struct message_lease){
        .sent_ms = sent_ms, .progress = waits ? find_progress(r, now_ms) : NULL};
}

/* --- Terms --- */

void roster_note_terms(struct roster *r, const struct message_terms *terms)
{
    const struct message_terms *hold = &r->terms;
    const struct {
        bool differs;
        const char *name;
    } rows[] = {
        {terms->window_ms != hold->window_ms, "the join window"},
        {terms->start_timeout_ms != hold->start_timeout_ms, "--start-timeout"},
        {terms->rejoin_timeout_ms != hold->rejoin_timeout_ms, "--rejoin-timeout"},
        {terms->max_restarts != hold->max_restarts ||
             terms->restart_window_ms != hold->restart_window_ms,
         "--max-restarts"},
        {memcmp(terms->no_restart_on, hold->no_restart_on, sizeof hold->no_restart_on) != 0,
         "--no-restart-on"},
        {terms->admit_at != hold->admit_at, "--admit-at"},
        {terms->admit_timeout_ms != hold->admit_timeout_ms, "--admit-timeout"},
        {terms->exclude_after != hold->exclude_after ||
             terms->exclude_window_ms != hold->exclude_window_ms,
         "--exclude-node-after"},
        {terms->no_progress != hold->no_progress, "--no-progress"},
        {terms->spares != hold->spares, "--spares"},
    };
    size_t n = 0;
    r->note[0] = '\0';
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].differs)
            n += (size_t)snprintf(r->note + n, sizeof r->note - n, "%s%s", n > 0 ? ", " : "",
                                  rows[i].name);
}

/* --- What the caller wants to know --- */

enum roster_state roster_get_state(const struct roster *r)
{
    return r->state;
}

uint32_t roster_generation(const struct roster *r)
{
    return r->generation;
}

uint32_t roster_n_nodes(const struct roster *r)
{
    return r->n_nodes;
}

uint32_t roster_n_restarts(const struct roster *r)
{
    return (uint32_t)r->budget.n_counted;
}

const struct roster_restart *roster_get_restart(const struct roster *r)
{
    return r->state != ROSTER_CLOSED ? &r->restart : NULL;
}

const char *roster_change(const struct roster *r)
{
    return r->change;
}

const char *roster_newly_excluded(const struct roster *r)
{
    return r->newly_excluded;
}

const struct message_verdict *roster_get_verdict(const struct roster *r)
{
    return r->state == ROSTER_CLOSED ? &r->verdict : NULL;
}

bool roster_has_informed_all(const struct roster *r)
{
    return r->state == ROSTER_CLOSED && r->has_informed_all;
}

uint32_t roster_n_health_changes(const struct roster *r)
{
    return r->n_health_changes;
}

uint32_t roster_n_slots(const struct roster *r)
{
    return r->n_slots;
}

bool roster_view(const struct roster *r, uint32_t slot, struct roster_node_view *ret)
{
    const struct roster_node *n = &r->nodes[slot];
    if (!n->used)
        return false;
    *ret = (struct roster_node_view){.instance = n->instance,
                                     .name = n->name,
                                     .n_local = n->n_local,
                                     .node_index = (uint32_t)n->seat,
                                     .first_rank = n->first_rank,
                                     .link = n->link,
                                     .here = roster_is_linked(n),
                                     .is_fit = n->health == ROSTER_FIT,
                                     .unfit = n->unfit,
                                     .is_member = roster_is_member(n),
                                     .is_done = n->done,
                                     .is_stopped = n->part == PART_STOPPED,
                                     .leaves = n->leaves,
                                     .has_saved = n->saved,
                                     .is_absent = n->absent};
    return true;
}

bool roster_view_link(const struct roster *r, uint64_t link, struct roster_node_view *ret)
{
    const uint32_t slot = roster_by_link(r, link);
    return slot != ROSTER_NO_SLOT && roster_view(r, slot, ret);
}
