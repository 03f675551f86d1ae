/* torch_trace_add() keeps of a dump the newest collective of each group (note_entry()). The second
 * part compares ranks: a group's call in which ranks wait has the highest number there, and those
 * that have a lower one lag (is_missing()). */
#include "torch_trace.h"

#include "launcher/lines/rank_list.h"

#include "common/error.h"
#include "common/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* --- A dump ----------------------------------------------------------------------------------- */

static void keep_text(char to[TORCH_TEXT_BYTES], const json_t *value)
{
    const char *text = json_string_value(value);
    snprintf(to, TORCH_TEXT_BYTES, "%s", text != NULL ? text : "");
    co_utf8_clean(to, strlen(to));
}

/* The call of a group; it is added if it is new. NULL: too many groups */
static struct torch_call *call_of(struct torch_trace *t, const char *group)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->calls[i].group, group) == 0)
            return &t->calls[i];
    if (t->n == TORCH_GROUPS_MAX)
        return NULL;
    struct torch_call *call = &t->calls[t->n++];
    *call = (struct torch_call){0};
    memcpy(call->group, group, TORCH_TEXT_BYTES);
    return call;
}

/* Calls of gloo that have ended stay "scheduled", but are retired. */
static bool has_ended(const json_t *entry)
{
    const char *state = json_string_value(json_object_get(entry, "state"));
    return json_is_true(json_object_get(entry, "retired")) ||
           (state != NULL && strcmp(state, "completed") == 0);
}

static void note_entry(struct torch_trace *t, const json_t *entry)
{
    const json_t *name = json_object_get(entry, "process_group");
    const json_int_t number = json_integer_value(json_object_get(entry, "collective_seq_id"));
    char group[TORCH_TEXT_BYTES] = "";
    if (number <= 0 || json_is_true(json_object_get(entry, "is_p2p")))
        return;
    keep_text(group, json_array_get(name, 0));
    struct torch_call *call = call_of(t, group);
    if (call == NULL || (uint64_t)number < call->number)
        return;
    call->number = (uint64_t)number;
    call->waits = !has_ended(entry);
    const json_int_t created_ns = json_integer_value(json_object_get(entry, "time_created_ns"));
    call->created_ns = created_ns > 0 ? (uint64_t)created_ns : 0;
    keep_text(call->about, json_array_get(name, 1));
    keep_text(call->op, json_object_get(entry, "profiling_name"));
}

int torch_trace_add(struct torch_trace *t, const char *text, size_t len, struct co_error *err)
{
    json_error_t where;
    json_t *all = json_loadb(text, len, 0, &where);
    const json_t *entries = json_object_get(all, "entries"), *entry;
    size_t i;
    if (!json_is_object(all)) {
        json_decref(all);
        return co_fail(err, -EPROTO, "torch's flight recorder sent something else than JSON");
    }
    json_array_foreach(entries, i, entry) note_entry(t, entry);
    json_decref(all);
    return 0;
}

uint64_t torch_trace_total(const struct torch_trace *t)
{
    uint64_t total = 0;
    for (size_t i = 0; i < t->n; i++)
        total += t->calls[i].number;
    return total;
}

uint64_t torch_trace_newest_ns(const struct torch_trace *t)
{
    uint64_t newest_ns = 0;
    for (size_t i = 0; i < t->n; i++)
        if (t->calls[i].created_ns > newest_ns)
            newest_ns = t->calls[i].created_ns;
    return newest_ns;
}

/* --- Several ranks ---------------------------------------------------------------------------- */

static const struct torch_call *find_call(const struct torch_rank *rank, const char *group)
{
    for (size_t i = 0; rank->trace != NULL && i < rank->trace->n; i++)
        if (strcmp(rank->trace->calls[i].group, group) == 0)
            return &rank->trace->calls[i];
    return NULL;
}

static bool waits_in(const struct torch_rank *rank, const struct torch_call *call)
{
    const struct torch_call *its = find_call(rank, call->group);
    return its != NULL && its->number == call->number && its->waits;
}

/* All ranks are of the default group; of another one only those are known that have called in
 * it. */
static bool is_missing_in(const struct torch_rank *rank, const struct torch_call *call)
{
    const struct torch_call *its = find_call(rank, call->group);
    if (rank->trace == NULL)
        return false;
    return its != NULL ? its->number < call->number : strcmp(call->about, "default_pg") == 0;
}

static int count(const struct torch_rank *list, int n, const struct torch_call *call,
                 bool (*is_one)(const struct torch_rank *, const struct torch_call *))
{
    int found = 0;
    for (int i = 0; i < n; i++)
        found += is_one(&list[i], call);
    return found;
}

/* Each group is looked at once: with the newest call in which a rank waits, of the first such
 * rank. */
static bool is_newest(const struct torch_rank *list, int n, int of, const struct torch_call *call)
{
    for (int i = 0; i < n; i++) {
        const struct torch_call *other = find_call(&list[i], call->group);
        if (other != NULL && other->waits &&
            (other->number > call->number || (other->number == call->number && i < of)))
            return false;
    }
    return call->waits;
}

/* The next call in which ranks wait, and others are missing, after (*rank, *at).
 * returns   NULL: no more */
static const struct torch_call *next_missed(const struct torch_rank *list, int n, int *rank,
                                            size_t *at)
{
    for (; *rank < n; ++*rank, *at = 0)
        for (; list[*rank].trace != NULL && *at < list[*rank].trace->n; ++*at) {
            const struct torch_call *call = &list[*rank].trace->calls[*at];
            if (is_newest(list, n, *rank, call) && count(list, n, call, is_missing_in) > 0) {
                ++*at;
                return call;
            }
        }
    return NULL;
}

int torch_trace_find_missing(const struct torch_rank *list, int n)
{
    int rank = 0, missing = -1;
    size_t at = 0;
    const struct torch_call *call;
    while ((call = next_missed(list, n, &rank, &at)) != NULL)
        for (int i = 0; i < n; i++) {
            if (!is_missing_in(&list[i], call))
                continue;
            if (missing >= 0 && missing != i)
                return -1;
            missing = i;
        }
    return missing;
}

/* "rank 1", "ranks 0, 2 and 3" */
static void print_ranks(const struct torch_rank *list, int n, const struct torch_call *call,
                        bool (*is_one)(const struct torch_rank *, const struct torch_call *),
                        FILE *out)
{
    int found[RANK_LIST_NAMED], n_found = 0;
    char text[RANK_LIST_BYTES];
    for (int i = 0; i < n; i++) {
        if (!is_one(&list[i], call))
            continue;
        if (n_found < RANK_LIST_NAMED)
            found[n_found] = list[i].rank;
        n_found++;
    }
    fputs(rank_list_text(found, n_found, text), out);
}

static void print_call(const struct torch_call *call, FILE *out)
{
    fprintf(out, "%s #%" PRIu64 " of process group %s", call->op, call->number, call->group);
    if (call->about[0] != '\0')
        fprintf(out, " (%s)", call->about);
}

void torch_trace_print_missing(const struct torch_rank *list, int n, FILE *out)
{
    int rank = 0;
    size_t at = 0;
    const struct torch_call *call;
    while ((call = next_missed(list, n, &rank, &at)) != NULL) {
        print_ranks(list, n, call, is_missing_in, out);
        fputs(count(list, n, call, is_missing_in) == 1 ? " is missing in " : " are missing in ",
              out);
        print_call(call, out);
        fputs(": ", out);
        print_ranks(list, n, call, waits_in, out);
        fputs(count(list, n, call, waits_in) == 1 ? " waits in it\n" : " wait in it\n", out);
    }
}

void torch_trace_print(const struct torch_trace *t, FILE *out)
{
    for (size_t i = 0; i < t->n; i++) {
        fputs(i > 0 ? "; " : " ", out);
        print_call(&t->calls[i], out);
        if (t->calls[i].waits)
            fputs(", waits", out);
    }
}

json_t *torch_trace_json_make(const struct torch_trace *t)
{
    json_t *list = json_array();
    for (size_t i = 0; i < t->n; i++) {
        const struct torch_call *call = &t->calls[i];
        json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:I,s:b}", "group", call->group,
                                              "description", call->about, "op", call->op, "number",
                                              (json_int_t)call->number, "waits", call->waits));
    }
    return list;
}
