#include "stack_missing.h"

#include "hang_text.h"
#include "stack.h"

#include <stdbool.h>

enum { NAMED = 16 }; /* ranks of a list */

/* The last call of the rank in a group; NULL: none. */
static const struct rank_status_call *call_in(const struct stack *s, uint16_t group)
{
    for (unsigned i = 0; i < s->progress.n_calls; i++)
        if (s->progress.call[i].group == group)
            return &s->progress.call[i];
    return NULL;
}

static bool waits_in(const struct stack *s, const struct rank_status_call *call)
{
    const struct rank_status_call *its = call_in(s, call->group);
    return its != NULL && its->number == call->number && its->state == RANK_STATUS_WAITS;
}

/* It is of the group, and has not come to the call, or has begun it and does something else. All
 * are of the world; of another group only those are known that have called in it. */
static bool is_missing_in(const struct stack *s, const struct rank_status_call *call)
{
    const struct rank_status_call *its = call_in(s, call->group);
    if (!s->is_there || !s->has_progress || waits_in(s, call))
        return false;
    if (its == NULL)
        return call->group == 0;
    return its->number < call->number ||
           (its->number == call->number && its->state == RANK_STATUS_BEGUN);
}

static int count(const struct stack *list, int n, const struct rank_status_call *call,
                 bool (*is_one)(const struct stack *, const struct rank_status_call *))
{
    int found = 0;
    for (int i = 0; i < n; i++)
        found += is_one(&list[i], call);
    return found;
}

/* The call in which most ranks wait; NULL: in none. */
static const struct rank_status_call *find_call(const struct stack *list, int n)
{
    const struct rank_status_call *best = NULL;
    int n_best = 0;
    for (int i = 0; i < n; i++) {
        for (unsigned j = 0; j < list[i].progress.n_calls; j++) {
            const struct rank_status_call *call = &list[i].progress.call[j];
            int n_waiting = count(list, n, call, waits_in);
            if (n_waiting > n_best) {
                best = call;
                n_best = n_waiting;
            }
        }
    }
    return best;
}

/* "rank 1", "ranks 0, 2 and 3" */
static void print_ranks(const struct stack *list, int n, const struct rank_status_call *call,
                        bool (*is_one)(const struct stack *, const struct rank_status_call *),
                        FILE *out)
{
    int n_all = count(list, n, call, is_one), n_done = 0;
    fputs(n_all == 1 ? "rank" : "ranks", out);
    for (int i = 0; i < n && n_done < NAMED; i++) {
        if (!is_one(&list[i], call))
            continue;
        bool is_last = n_all > 1 && n_done == n_all - 1;
        fprintf(out, "%s %d", n_done == 0 ? "" : is_last ? " and" : ",", list[i].rank);
        n_done++;
    }
    if (n_done < n_all)
        fprintf(out, " and %d more", n_all - n_done);
}

void stack_print_missing(const struct stack *list, int n, FILE *out)
{
    char text[HANG_CALL_BYTES];
    const struct rank_status_call *call = find_call(list, n);
    int n_missing = call != NULL ? count(list, n, call, is_missing_in) : 0;
    if (n_missing == 0)
        return;
    print_ranks(list, n, call, is_missing_in, out);
    fprintf(out, " %s missing in %s: ", n_missing == 1 ? "is" : "are", hang_text_call(call, text));
    print_ranks(list, n, call, waits_in, out);
    fprintf(out, " %s in it\n", count(list, n, call, waits_in) == 1 ? "waits" : "wait");
}
