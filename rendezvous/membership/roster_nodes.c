/* roster_nodes.c - the nodes that the roster knows: slots, ways to find them, lists by time,
 * counts.
 *
 * Only this file writes the fields that the counts of struct roster are made of. */
#include "roster_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One step sends a node at most: REFUSED and CLOSE, or CLOSE, WELCOME, a place and PENDING; STOP; a
 * place; VERDICT; the health of one node. To which come the health of all nodes for one that joins,
 * the state's changes, and the refusal of a node that is not a member. */
enum { ACTIONS_PER_NODE = 8, ACTIONS_BESIDES = 16 };

/* --- Finding --- */

static uint64_t hash_of_instance(const uint8_t *instance)
{
    uint64_t half[2];
    memcpy(half, instance, sizeof half);
    return roster_index_hash(half[0], half[1]);
}

static uint64_t hash_of_link(uint64_t link)
{
    return roster_index_hash(link, 1);
}

static uint64_t hash_of_node_rank(int32_t node_rank)
{
    return roster_index_hash((uint64_t)node_rank, 2);
}

static uint64_t hash_of_name(const char *name)
{
    return roster_index_hash(roster_order_key(ROSTER_ORDER_NONE, name), 3);
}

uint32_t roster_by_link(const struct roster *r, uint64_t link)
{
    size_t at = 0;
    uint32_t slot;
    while ((slot = roster_index_find(&r->by_link, hash_of_link(link), &at)) != ROSTER_NO_SLOT)
        if (r->nodes[slot].link == link)
            break;
    return slot;
}

uint32_t roster_by_instance(const struct roster *r, const uint8_t *instance)
{
    size_t at = 0;
    uint32_t slot;
    while ((slot = roster_index_find(&r->by_instance, hash_of_instance(instance), &at)) !=
           ROSTER_NO_SLOT)
        if (memcmp(r->nodes[slot].instance, instance, MESSAGE_INSTANCE_BYTES) == 0)
            break;
    return slot;
}

bool roster_has_instance(const struct roster *r, const uint8_t instance[MESSAGE_INSTANCE_BYTES])
{
    const uint32_t slot = roster_by_instance(r, instance);
    return slot != ROSTER_NO_SLOT && r->nodes[slot].link != 0;
}

uint32_t roster_by_node_rank(const struct roster *r, int32_t node_rank)
{
    size_t at = 0;
    uint32_t slot;
    while ((slot = roster_index_find(&r->by_node_rank, hash_of_node_rank(node_rank), &at)) !=
           ROSTER_NO_SLOT)
        if (r->nodes[slot].node_rank == node_rank)
            break;
    return slot;
}

static uint32_t find_domain(const struct roster *r, const char *name)
{
    size_t at = 0;
    uint32_t i;
    while ((i = roster_index_find(&r->by_domain, hash_of_name(name), &at)) != ROSTER_NO_SLOT)
        if (strcmp(r->domains[i].name, name) == 0)
            return i;
    return ROSTER_NO_DOMAIN;
}

/* returns its place in the host file, or ROSTER_ORDER_NONE */
static int32_t find_expected(const struct roster *r, const char *name)
{
    size_t at = 0;
    uint32_t i;
    while ((i = roster_index_find(&r->by_expected, hash_of_name(name), &at)) != ROSTER_NO_SLOT)
        if (strcmp(r->expected[i], name) == 0)
            return (int32_t)i;
    return ROSTER_ORDER_NONE;
}

/* --- Lists by time: each node moves to the end as its time is set, so they are sorted --- */

static void list_take(struct roster *r, uint32_t slot)
{
    struct roster_node *n = &r->nodes[slot];
    struct roster_list *list = &r->lists[n->in];
    if (n->in == LIST_NONE)
        return;
    if (n->prev != ROSTER_NO_SLOT)
        r->nodes[n->prev].next = n->next;
    else
        list->first = n->next;
    if (n->next != ROSTER_NO_SLOT)
        r->nodes[n->next].prev = n->prev;
    else
        list->last = n->prev;
    n->in = LIST_NONE;
}

static void list_append(struct roster *r, enum roster_list_name in, uint32_t slot, uint64_t now_ms)
{
    struct roster_node *n = &r->nodes[slot];
    struct roster_list *list = &r->lists[in];
    n->since_ms = now_ms;
    n->in = in;
    n->prev = list->last;
    n->next = ROSTER_NO_SLOT;
    if (list->last != ROSTER_NO_SLOT)
        r->nodes[list->last].next = slot;
    else
        list->first = slot;
    list->last = slot;
}

void roster_hear(struct roster *r, uint32_t slot, uint64_t now_ms)
{
    if (r->nodes[slot].in != LIST_HEARD)
        return;
    list_take(r, slot);
    list_append(r, LIST_HEARD, slot, now_ms);
}

void roster_hear_all(struct roster *r, uint64_t now_ms)
{
    for (uint32_t i = 0; i < r->n_slots; i++)
        if (r->nodes[i].used)
            r->nodes[i].since_ms = now_ms;
}

/* --- Counts --- */

static bool counts_as_away(const struct roster_node *n)
{
    return n->used && n->link == 0 && !n->leaves && n->health == ROSTER_FIT;
}

/* The next generation waits for what its check finds. */
static bool counts_as_unchecked(const struct roster_node *n)
{
    return roster_is_linked(n) && n->part == PART_STOPPED && n->health == ROSTER_UNCHECKED;
}

/* It would take part again if the generation that runs were ended for others. */
static bool counts_as_joinable(const struct roster_node *n)
{
    return roster_is_here(n) || (roster_is_member(n) && !n->leaves);
}

static void count_in_domain(struct roster *r, uint32_t domain, enum roster_count which, uint32_t by)
{
    uint32_t *n = &r->domains[domain].n[which];
    r->n_segments[which] -= *n / r->terms.segment;
    *n += by;
    r->n_segments[which] += *n / r->terms.segment;
}

static void domain_count(struct roster *r, const struct roster_node *n, uint32_t one)
{
    if (!n->used || n->domain == ROSTER_NO_DOMAIN)
        return;
    count_in_domain(r, n->domain, COUNT_HERE, roster_is_here(n) ? one : 0);
    count_in_domain(r, n->domain, COUNT_LEFT, roster_is_here(n) || counts_as_away(n) ? one : 0);
    count_in_domain(r, n->domain, COUNT_JOINABLE, counts_as_joinable(n) ? one : 0);
}

uint32_t roster_n_usable(const struct roster *r, enum roster_count which)
{
    if (r->terms.segment == 0)
        return which == COUNT_HERE ? r->n_here : r->n_here + r->n_away;
    if (r->keeper_domain != ROSTER_NO_DOMAIN &&
        r->domains[r->keeper_domain].n[which] < r->terms.segment)
        return 0;
    return r->n_segments[which] * r->terms.segment;
}

/* Call it before and after a change to a node: `by` is -1, then 1. */
static void node_count(struct roster *r, uint32_t slot, int by)
{
    const struct roster_node *n = &r->nodes[slot];
    uint32_t one = (uint32_t)by; /* wraps: adds -1 */
    r->n_nodes += n->used ? one : 0;
    r->n_here += roster_is_here(n) ? one : 0;
    r->n_away += counts_as_away(n) ? one : 0;
    r->n_unchecked += counts_as_unchecked(n) ? one : 0;
    r->n_part[n->part] += n->used ? one : 0;
    r->n_done += roster_is_member(n) && n->done ? one : 0;
    r->n_saved += roster_is_member(n) && n->saved ? one : 0;
    domain_count(r, n, one);
    r->progress_stale = true;
}

void roster_attach(struct roster *r, uint32_t slot, uint64_t link, uint64_t now_ms)
{
    struct roster_node *n = &r->nodes[slot];
    node_count(r, slot, -1);
    if (n->link != 0)
        roster_index_remove(&r->by_link, hash_of_link(n->link), slot);
    n->link = link;
    roster_index_add(&r->by_link, hash_of_link(link), slot);
    list_take(r, slot);
    if (!n->local)
        list_append(r, LIST_HEARD, slot, now_ms);
    node_count(r, slot, 1);
}

void roster_detach(struct roster *r, uint32_t slot, uint64_t now_ms)
{
    struct roster_node *n = &r->nodes[slot];
    node_count(r, slot, -1);
    if (n->link != 0)
        roster_index_remove(&r->by_link, hash_of_link(n->link), slot);
    n->link = 0;
    list_take(r, slot);
    list_append(r, LIST_AWAY, slot, now_ms);
    node_count(r, slot, 1);
}

void roster_cut(struct roster *r, uint32_t slot)
{
    struct roster_node *n = &r->nodes[slot];
    node_count(r, slot, -1);
    if (n->link != 0)
        roster_index_remove(&r->by_link, hash_of_link(n->link), slot);
    n->link = 0;
    n->leaves = n->condemned = true;
    node_count(r, slot, 1);
}

void roster_set_leaving(struct roster *r, uint32_t slot)
{
    node_count(r, slot, -1);
    r->nodes[slot].leaves = true;
    node_count(r, slot, 1);
}

void roster_set_part(struct roster *r, uint32_t slot, enum roster_part part)
{
    node_count(r, slot, -1);
    r->nodes[slot].part = part;
    node_count(r, slot, 1);
}

void roster_set_known(struct roster *r, uint32_t slot)
{
    r->nodes[slot].known = (struct roster_known){.generation = r->generation,
                                                 .n_nodes = r->n_members,
                                                 .index = (uint32_t)r->nodes[slot].seat};
}

void roster_set_health(struct roster *r, uint32_t slot, enum roster_health health)
{
    node_count(r, slot, -1);
    r->nodes[slot].health = health;
    node_count(r, slot, 1);
}

void roster_set_done(struct roster *r, uint32_t slot)
{
    node_count(r, slot, -1);
    r->nodes[slot].done = true;
    node_count(r, slot, 1);
}

void roster_set_saved(struct roster *r, uint32_t slot)
{
    node_count(r, slot, -1);
    r->nodes[slot].saved = true;
    node_count(r, slot, 1);
}

/* --- Coming and going --- */

static int grow(void *at, size_t n, size_t item_bytes)
{
    void *bigger = realloc(*(void **)at, n * item_bytes);
    if (bigger == NULL)
        return -ENOMEM;
    *(void **)at = bigger;
    return 0;
}

static int reserve_actions(struct roster *r, uint32_t n_slots)
{
    size_t n = (size_t)ACTIONS_PER_NODE * n_slots + ACTIONS_BESIDES +
               2 * (r->cap_addresses / MESSAGE_MAX_MEMBERS);
    if (n <= r->cap_actions)
        return 0;
    n += n / 2;
    if (grow(&r->actions, n, sizeof *r->actions) < 0)
        return -ENOMEM;
    r->cap_actions = n;
    return 0;
}

int roster_reserve_action(struct roster *r)
{
    size_t n = r->n_actions + r->n_actions / 2 + 1;
    if (r->n_actions < r->cap_actions)
        return 0;
    if (grow(&r->actions, n, sizeof *r->actions) < 0)
        return -ENOMEM;
    r->cap_actions = n;
    return 0;
}

static int reserve_addresses(struct roster *r, uint32_t n)
{
    if (n <= r->cap_addresses)
        return 0;
    n += n / 2;
    if (grow(&r->addresses, n, sizeof *r->addresses) < 0)
        return -ENOMEM;
    r->cap_addresses = n;
    return 0;
}

static int reserve_slots(struct roster *r, uint32_t n)
{
    if (roster_index_reserve(&r->by_link, n) < 0 || roster_index_reserve(&r->by_instance, n) < 0 ||
        roster_index_reserve(&r->by_node_rank, n) < 0 ||
        (r->terms.segment > 0 && roster_index_reserve(&r->by_domain, n) < 0))
        return -ENOMEM;
    if (n <= r->cap_slots)
        return 0;
    n = n < 8 ? 8 : n + n / 2;
    if (r->terms.segment > 0 && grow(&r->domains, n, sizeof *r->domains) < 0)
        return -ENOMEM;
    if (grow(&r->nodes, n, sizeof *r->nodes) < 0 ||
        grow(&r->free_slots, n, sizeof *r->free_slots) < 0 ||
        grow(&r->seats, n, sizeof *r->seats) < 0 || grow(&r->entries, n, sizeof *r->entries) < 0)
        return -ENOMEM;
    r->cap_slots = n;
    return 0;
}

int roster_reserve(struct roster *r, size_t n_addresses)
{
    uint32_t n_slots = r->n_free > 0 ? r->n_slots : r->n_slots + 1;
    if (reserve_slots(r, n_slots) < 0 ||
        reserve_addresses(r, r->n_all_addresses + (uint32_t)n_addresses) < 0 ||
        reserve_actions(r, n_slots) < 0)
        return -ENOMEM;
    return 0;
}

int roster_reserve_slots(struct roster *r, uint32_t n)
{
    return reserve_slots(r, n) < 0 || reserve_actions(r, n) < 0 ? -ENOMEM : 0;
}

static int copy_addresses(const struct message_hello *hello, struct message_address **ret)
{
    size_t n = hello->n_addresses;
    *ret = NULL;
    if (n == 0)
        return 0;
    *ret = malloc(n * sizeof **ret);
    if (*ret == NULL)
        return -ENOMEM;
    memcpy(*ret, hello->addresses, n * sizeof **ret);
    return 0;
}

/* A domain has one node at least, so there are no more of them than slots. */
static uint32_t enter_domain(struct roster *r, const char *name)
{
    uint32_t i = ROSTER_NO_DOMAIN;
    if (r->terms.segment == 0)
        return i;
    i = find_domain(r, name);
    if (i == ROSTER_NO_DOMAIN) {
        i = r->free_domain != ROSTER_NO_DOMAIN ? r->free_domain : r->n_domains++;
        if (i == r->free_domain)
            r->free_domain = r->domains[i].next_free;
        r->domains[i] = (struct roster_domain){0};
        snprintf(r->domains[i].name, sizeof r->domains[i].name, "%s", name);
        roster_index_add(&r->by_domain, hash_of_name(r->domains[i].name), i);
    }
    r->domains[i].n_nodes++;
    return i;
}

static void leave_domain(struct roster *r, uint32_t i)
{
    if (i == ROSTER_NO_DOMAIN || --r->domains[i].n_nodes > 0)
        return;
    roster_index_remove(&r->by_domain, hash_of_name(r->domains[i].name), i);
    r->domains[i].next_free = r->free_domain;
    r->free_domain = i;
}

static uint32_t take_slot(struct roster *r)
{
    return r->n_free > 0 ? r->free_slots[--r->n_free] : r->n_slots++;
}

int roster_admit(struct roster *r, const struct message_hello *hello, bool local, uint64_t now_ms,
                 uint32_t *ret_slot)
{
    struct message_address *addresses;
    if (roster_reserve(r, hello->n_addresses) < 0 || copy_addresses(hello, &addresses) < 0)
        return -ENOMEM;
    uint32_t slot = take_slot(r);
    struct roster_node *n = &r->nodes[slot];
    *n = (struct roster_node){.used = true,
                              .node_rank = hello->node_rank,
                              .expected = find_expected(r, hello->name),
                              .n_local = hello->n_local,
                              .n_next = hello->n_local,
                              .stop_ms = hello->stop_ms,
                              .checks = hello->checks,
                              .health = hello->checks ? ROSTER_UNCHECKED : ROSTER_FIT,
                              .check_ms = hello->check_ms,
                              .local = local,
                              .keeps_rank_0 = hello->keeps_rank_0,
                              .domain = enter_domain(r, hello->domain),
                              .n_addresses = hello->n_addresses,
                              .addresses = addresses,
                              .arrival = r->n_arrivals++,
                              .since_ms = now_ms,
                              .seat = ROSTER_ORDER_NONE,
                              .known = {.generation = MESSAGE_NO_GENERATION}};
    memcpy(n->instance, hello->instance, sizeof n->instance);
    snprintf(n->name, sizeof n->name, "%s", hello->name);
    roster_index_add(&r->by_instance, hash_of_instance(n->instance), slot);
    if (n->node_rank >= 0)
        roster_index_add(&r->by_node_rank, hash_of_node_rank(n->node_rank), slot);
    if (n->expected >= 0)
        r->came[n->expected]++;
    if (n->keeps_rank_0) {
        memcpy(r->keeper, n->name, sizeof r->keeper);
        r->keeper_domain = n->domain;
    }
    r->n_all_addresses += (uint32_t)n->n_addresses;
    node_count(r, slot, 1);
    *ret_slot = slot;
    return 0;
}

uint32_t roster_admit_absent(struct roster *r, uint32_t seat, uint64_t since_ms)
{
    uint32_t slot = take_slot(r);
    struct roster_node *n = &r->nodes[slot];
    *n = (struct roster_node){.used = true,
                              .absent = true,
                              .node_rank = MESSAGE_NO_RANK,
                              .expected = ROSTER_ORDER_NONE,
                              .arrival = r->n_arrivals++,
                              .part = PART_ASSIGNED,
                              .domain = ROSTER_NO_DOMAIN,
                              .seat = (int32_t)seat,
                              .known = {.generation = MESSAGE_NO_GENERATION}};
    snprintf(n->name, sizeof n->name, "GROUP_RANK=%" PRIu32, seat);
    list_append(r, LIST_ABSENT, slot, since_ms);
    r->n_absent++;
    node_count(r, slot, 1);
    return slot;
}

void roster_forget(struct roster *r, uint32_t slot)
{
    struct roster_node *n = &r->nodes[slot];
    node_count(r, slot, -1);
    list_take(r, slot);
    if (n->absent)
        r->n_absent--;
    else
        roster_index_remove(&r->by_instance, hash_of_instance(n->instance), slot);
    if (n->link != 0)
        roster_index_remove(&r->by_link, hash_of_link(n->link), slot);
    if (n->node_rank >= 0)
        roster_index_remove(&r->by_node_rank, hash_of_node_rank(n->node_rank), slot);
    if (n->expected >= 0)
        r->came[n->expected]--;
    if (n->keeps_rank_0) {
        r->keeper[0] = '\0';
        r->keeper_domain = ROSTER_NO_DOMAIN;
    }
    leave_domain(r, n->domain);
    if (r->leader == slot)
        r->leader = ROSTER_NO_SLOT;
    if (r->cause.node == slot)
        r->cause.node = ROSTER_NO_SLOT;
    r->n_all_addresses -= (uint32_t)n->n_addresses;
    free(n->addresses);
    *n = (struct roster_node){.seat = ROSTER_ORDER_NONE};
    r->free_slots[r->n_free++] = slot;
}

/* --- Excluded --- */

const struct roster_past_excluded *roster_exclude(struct roster *r, uint32_t slot,
                                                  uint8_t exit_code)
{
    struct roster_past_excluded *x = &r->excluded[r->n_excluded++ % ROSTER_MAX_EXCLUDED];
    memcpy(x->name, r->nodes[slot].name, sizeof x->name);
    x->exit_code = exit_code;
    roster_forget(r, slot);
    return x;
}

const struct roster_past_excluded *roster_find_excluded(const struct roster *r, const char *name)
{
    const uint32_t n = r->n_excluded < ROSTER_MAX_EXCLUDED ? r->n_excluded : ROSTER_MAX_EXCLUDED;
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(r->excluded[i].name, name) == 0)
            return &r->excluded[i];
    return NULL;
}

/* --- Places --- */

static int32_t place_before(const struct roster *r, const struct roster_node *n)
{
    bool knows =
        n->known.generation != MESSAGE_NO_GENERATION && n->known.generation == r->before.generation;
    return knows ? (int32_t)n->known.index : ROSTER_ORDER_NONE;
}

static uint32_t list_candidates(struct roster *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_slots; i++) {
        const struct roster_node *node = &r->nodes[i];
        if (!roster_is_here(node))
            continue;
        r->entries[n++] =
            (struct roster_order_entry){.slot = i,
                                        .name = node->name,
                                        .instance = node->instance,
                                        .arrival = node->arrival,
                                        .key = roster_order_key(node->node_rank, node->name),
                                        .node_rank = node->node_rank,
                                        .expected = node->expected,
                                        .seat = node->seat,
                                        .before = place_before(r, node),
                                        .domain = node->domain,
                                        .keeps_rank_0 = node->keeps_rank_0};
    }
    return n;
}

static void take_place(struct roster *r, uint32_t i)
{
    uint32_t slot = r->entries[i].slot;
    struct roster_node *n = &r->nodes[slot];
    n->seat = (int32_t)i;
    n->first_rank = r->world_size;
    n->n_local = n->n_next;
    roster_set_part(r, slot, PART_UNASSIGNED);
    r->seats[i] = (struct roster_order_seat){
        .key = r->entries[i].key, .domain = n->domain, .index = (int32_t)i};
    r->world_size += n->n_local;
    if (n->n_addresses > 0)
        memcpy(r->addresses + r->n_addresses, n->addresses, n->n_addresses * sizeof *n->addresses);
    r->n_addresses += (uint32_t)n->n_addresses;
    if (n->stop_ms > r->stop_ms)
        r->stop_ms = n->stop_ms;
}

/* The newest generation that one of the n first entries knows. Each of them gets a place now. */
static struct roster_before find_before(const struct roster *r, uint32_t n)
{
    struct roster_before b = {.generation = MESSAGE_NO_GENERATION};
    for (uint32_t i = 0; i < n; i++) {
        const struct roster_known *k = &r->nodes[r->entries[i].slot].known;
        if (k->generation != MESSAGE_NO_GENERATION &&
            (b.generation == MESSAGE_NO_GENERATION || k->generation > b.generation))
            b = (struct roster_before){.generation = k->generation, .n_nodes = k->n_nodes};
    }
    return b;
}

/* And those of its places that none of them had: seats[].n_taken marks the others. */
static void note_before(struct roster *r, uint32_t n)
{
    struct roster_before *b = &r->before;
    *b = find_before(r, n);
    for (uint32_t i = 0; i < b->n_nodes; i++)
        r->seats[i].n_taken = 0;
    for (uint32_t i = 0; i < n; i++) {
        const int32_t at = place_before(r, &r->nodes[r->entries[i].slot]);
        if (at >= 0)
            r->seats[at].n_taken = 1;
    }
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        if (r->seats[i].n_taken == 0 && b->n_missing < ROSTER_PAST_MISSING)
            b->missing[b->n_missing++] = i;
        else if (r->seats[i].n_taken == 0)
            b->generation = MESSAGE_NO_GENERATION;
        r->seats[i].n_taken = 0;
    }
}

/* Of the entries from n on those whose ranks may live on since they had a place. */
static void note_left_out(struct roster *r, uint32_t n, uint32_t n_all)
{
    for (uint32_t i = n; i < n_all; i++) {
        struct roster_node *node = &r->nodes[r->entries[i].slot];
        node->is_left_out =
            node->seat != ROSTER_ORDER_NONE || r->entries[i].before != ROSTER_ORDER_NONE;
    }
}

static bool is_vacant(const struct roster *r, int32_t seat)
{
    for (uint32_t i = 0; i < r->n_slots; i++)
        if (roster_is_here(&r->nodes[i]) && r->nodes[i].seat == seat)
            return false;
    return true;
}

/* Does this node, which had no place, return to one that is vacant? */
static bool returns_to_place(const struct roster *r, const struct roster_node *n)
{
    const uint64_t key = roster_order_key(n->node_rank, n->name);
    for (uint32_t i = 0; i < r->n_seats; i++)
        if (r->seats[i].key == key && is_vacant(r, r->seats[i].index))
            return true;
    return false;
}

/* Without the node that had the place, all of its segment may have to go. */
bool roster_would_take_spare(const struct roster *r)
{
    uint32_t n_kept = 0, n_spares = 0, n_back = 0;
    for (uint32_t i = 0; i < r->n_slots; i++) {
        const struct roster_node *n = &r->nodes[i];
        if (!roster_is_here(n))
            continue;
        if (n->seat != ROSTER_ORDER_NONE)
            n_kept++;
        else if (returns_to_place(r, n))
            n_back++;
        else
            n_spares++;
    }
    return (n_spares > 0 || r->terms.segment > 0) && n_kept + n_back < r->n_seats;
}

void roster_give_places(struct roster *r)
{
    roster_clear_places(r);
    const uint32_t n_all = list_candidates(r);
    const uint32_t n = (uint32_t)roster_order_make(r->entries, n_all, r->seats, r->n_seats,
                                                   r->terms.max_nodes, r->terms.segment);
    note_before(r, n);
    note_left_out(r, n, n_all);
    for (uint32_t i = 0; i < r->n_slots; i++)
        r->nodes[i].seat = ROSTER_ORDER_NONE;
    r->world_size = r->n_addresses = 0;
    r->stop_ms = 0;
    for (uint32_t i = 0; i < n; i++)
        take_place(r, i);
    r->n_seats = r->n_members = n;
    r->leader = r->entries[0].slot;
}

void roster_clear_places(struct roster *r)
{
    for (uint32_t i = 0; i < r->n_slots; i++) {
        if (!roster_is_member(&r->nodes[i]))
            continue;
        node_count(r, i, -1);
        r->nodes[i].part = PART_NONE;
        r->nodes[i].done = r->nodes[i].saved = false;
        node_count(r, i, 1);
    }
    r->leader = ROSTER_NO_SLOT;
}

/* --- Beginning and end --- */

void roster_nodes_init(struct roster *r)
{
    for (int i = 0; i < LIST_N; i++)
        r->lists[i] = (struct roster_list){ROSTER_NO_SLOT, ROSTER_NO_SLOT};
    r->leader = r->cause.node = ROSTER_NO_SLOT;
    r->free_domain = r->keeper_domain = ROSTER_NO_DOMAIN;
}

int roster_nodes_expect(struct roster *r, const char *const *names, size_t n)
{
    if (n == 0)
        return 0;
    r->expected = calloc(n, sizeof *r->expected);
    r->came = calloc(n, sizeof *r->came);
    if (r->expected == NULL || r->came == NULL || roster_index_reserve(&r->by_expected, n) < 0)
        return -ENOMEM;
    for (; r->n_expected < n; r->n_expected++) {
        char *name = strdup(names[r->n_expected]);
        if (name == NULL)
            return -ENOMEM;
        r->expected[r->n_expected] = name;
        roster_index_add(&r->by_expected, hash_of_name(name), r->n_expected);
    }
    return 0;
}

void roster_nodes_fini(struct roster *r)
{
    for (uint32_t i = 0; i < r->n_slots; i++)
        free(r->nodes[i].addresses);
    for (uint32_t i = 0; i < r->n_expected; i++)
        free(r->expected[i]);
    roster_index_fini(&r->by_link);
    roster_index_fini(&r->by_instance);
    roster_index_fini(&r->by_node_rank);
    roster_index_fini(&r->by_expected);
    roster_index_fini(&r->by_domain);
    free(r->domains);
    free(r->nodes);
    free(r->free_slots);
    free(r->expected);
    free(r->came);
    free(r->seats);
    free(r->entries);
    free(r->addresses);
    free(r->actions);
    free(r->excluded);
}
