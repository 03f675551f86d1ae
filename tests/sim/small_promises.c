#include "small_promises.h"

static const char *first_broken; /* NULL: none */

const char *promise_broken(void)
{
    return first_broken;
}

void promise(bool holds, const char *what)
{
    if (!holds && first_broken == NULL)
        first_broken = what;
}

/* --- Of generations --- */

static void check_places(const struct world *w)
{
    uint32_t n_members = 0, world_size = 0, ranks = 0;
    struct roster_node_view v;
    for (uint32_t i = 0; i < roster_n_slots(w->roster); i++) {
        if (!roster_view(w->roster, i, &v) || !v.is_member)
            continue;
        uint32_t own = ((1u << v.n_local) - 1) << v.first_rank;
        promise((ranks & own) == 0, "two nodes have the same rank");
        ranks |= own;
        n_members++;
        world_size += v.n_local;
        promise(v.is_fit, "a node has a place that is not known to be healthy");
    }
    promise(ranks + 1 == 1u << world_size, "ranks are not dense");
    promise(n_members >= w->config->min_nodes && n_members <= w->config->max_nodes,
            "fewer nodes than the minimum or more than the maximum");
}

/* After a reset a node has a lease left, and no more. */
static bool is_exempt(const struct world *w, const struct node *n)
{
    return n->reset_ms != 0 &&
           (!w->config->leases || w->now_ms <= n->reset_ms + w->roster->limits.lease_ms);
}

void promise_at_sealing(const struct world *w)
{
    promise(roster_generation(w->roster) < MAX_GENERATIONS, "too many generations");
    check_places(w);
    for (int i = 0; i < N_NODES; i++) {
        const struct node *n = &w->nodes[i];
        promise(!n->runs || n->generation >= roster_generation(w->roster) || is_exempt(w, n),
                "a rank of an older generation runs when a new one is sealed");
    }
}

void promise_of_verdict(const struct world *w)
{
    const struct message_verdict *v = roster_get_verdict(w->roster);
    uint32_t generation = roster_generation(w->roster);
    promise(v->outcome != MESSAGE_RANK_FAILED || w->own_failure[generation],
            "the verdict is a failure that was another node's fault");
    promise(v->outcome != MESSAGE_RANK_FAILED || !w->config->tells || v->exit_code == OWN_CODE,
            "the verdict is a consequence, though its cause is known");
    promise(v->outcome != MESSAGE_WELL || !w->own_failure[generation], "a failure was forgotten");
}

void promise_of_budget(const struct world *w)
{
    uint32_t n_own = 0;
    for (int i = 0; i < MAX_GENERATIONS; i++)
        n_own += w->own_failure[i];
    promise(roster_n_restarts(w->roster) <= w->config->max_restarts, "too many restarts");
    promise(roster_n_restarts(w->roster) <= n_own, "the budget was charged with a loss");
}

/* It had a place in the generation that was taken over, and did not receive it: no rank there has
 * completed a step. */
void promise_of_move(const struct world *w, const struct node *n, const struct message *m)
{
    promise(m->type != MESSAGE_REFUSED || m->refused.why != MESSAGE_REFUSED_LOST || !n->parks ||
                w->inherited != roster_generation(w->roster) || n->sealed_in != w->inherited ||
                n->generation != w->told,
            "ranks are killed because another roster took over");
}

void promise_of_number(const struct node *n, uint32_t n_given)
{
    const uint32_t n_here = n->all_late ? 0 : n->n_ranks;
    promise(n_given >= n_here && n_given > 0, "a node is given fewer ranks than it has");
    promise(n->all_late || n_given <= n_here + n->n_late, "a rank is counted that died before");
}

/* --- Of steps --- */

void promise_of_generations(const struct world *w, const struct node *n)
{
    for (int i = 0; i < N_NODES; i++)
        promise(!w->nodes[i].has_met || w->nodes[i].generation <= n->generation || is_exempt(w, n),
                "ranks go on in a generation when others have met in a later one");
}

/* Ranks copy the state with the most steps: all that have as many have the same one. */
void promise_of_history(const struct world *w, const struct node *n)
{
    for (int i = 0; i < N_NODES; i++) {
        const struct node *peer = &w->nodes[i];
        promise(!peer->runs || peer->generation != n->generation || peer->n_steps != n->n_steps ||
                    peer->history == n->history,
                "ranks have made the same number of steps, from different states");
    }
}

/* As good as dead: what only its ranks know goes with them. */
static bool is_going(const struct node *n)
{
    return n->member == NULL || n->member->knows_end;
}

void promise_no_step_is_lost(const struct world *w, const struct node *n)
{
    for (int i = 0; i < N_NODES; i++)
        promise(w->nodes[i].n_steps <= n->n_steps || w->nodes[i].has_met ||
                    is_going(&w->nodes[i]) || is_exempt(w, &w->nodes[i]),
                "a step is lost that somebody has completed");
}
