#include "top_frame.h"

#include "common/scope.h"
#include "ctl/base/table.h"
#include "ctl/job/job_print.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

const char *const top_order_names[TOP_N_ORDERS] = {
    [TOP_BY_RANK] = "rank",
    [TOP_BY_CPU] = "cpu",
    [TOP_BY_MEMORY] = "memory",
    [TOP_BY_OWN] = "own",
};

/* --- Order --- */

struct place { /* of a rank */
    json_t *rank;
    bool has_ended;
    double weight; /* the greatest first */
};

static double weigh(const json_t *rank, enum top_order order)
{
    static const char *const keys[TOP_N_ORDERS] = {
        [TOP_BY_CPU] = "cpu_percent", [TOP_BY_MEMORY] = "rss_bytes", [TOP_BY_OWN] = "own_ms"};
    if (order == TOP_BY_RANK)
        return -(double)json_integer_value(json_object_get(rank, "rank"));
    return json_number_value(json_object_get(rank, keys[order]));
}

static int compare_places(const void *a, const void *b)
{
    const struct place *one = a, *other = b;
    if (one->has_ended != other->has_ended)
        return one->has_ended - other->has_ended;
    if (one->weight != other->weight)
        return one->weight < other->weight ? 1 : -1;
    int64_t first = json_integer_value(json_object_get(one->rank, "rank"));
    int64_t second = json_integer_value(json_object_get(other->rank, "rank"));
    return (first > second) - (first < second);
}

void top_frame_sort(json_t *status, enum top_order order)
{
    json_t *ranks = json_object_get(status, "ranks");
    size_t n = json_array_size(ranks), i;
    json_t *rank;
    co_autofree struct place *places = calloc(n + 1, sizeof *places);
    if (places == NULL || n < 2)
        return;
    json_array_foreach(ranks, i, rank)
    {
        const char *state = json_string_value(json_object_get(rank, "state"));
        places[i] = (struct place){.rank = json_incref(rank),
                                   .has_ended = state == NULL || strcmp(state, "running") != 0,
                                   .weight = weigh(rank, order)};
    }
    qsort(places, n, sizeof *places, compare_places);
    json_array_clear(ranks);
    for (i = 0; i < n; i++)
        json_array_append_new(ranks, places[i].rank);
}

/* --- Lines --- */

static size_t count_lines(const char *text)
{
    size_t n = 0;
    for (; (text = strchr(text, '\n')) != NULL; text++)
        n++;
    return n;
}

/* The first lines; the last one that fits reports how many are missing. */
static void print_first(const char *text, int height, FILE *out)
{
    size_t n = count_lines(text);
    size_t room = height > 0 ? (size_t)height : n;
    size_t n_shown = n <= room ? n : room - 1;
    for (size_t i = 0; i < n_shown; i++) {
        size_t len = strcspn(text, "\n") + 1;
        fwrite(text, 1, len, out);
        text += len;
    }
    if (n_shown < n && room > 0)
        fprintf(out, "... %zu more lines\n", n - n_shown);
}

static int64_t count_running(json_t *const *statuses, size_t n)
{
    int64_t n_running = 0;
    for (size_t i = 0; i < n; i++) {
        size_t j;
        const json_t *rank;
        json_array_foreach(json_object_get(statuses[i], "ranks"), j, rank)
        {
            const char *state = json_string_value(json_object_get(rank, "state"));
            n_running += state != NULL && strcmp(state, "running") == 0;
        }
    }
    return n_running;
}

static void print_head(const struct top_view *view, json_t *const *statuses, size_t n, FILE *out)
{
    char line[160];
    snprintf(line, sizeof line, "ddpctl %s  %zu job node%s, %lld ranks running, sorted by %s",
             view->when, n, n == 1 ? "" : "s", (long long)count_running(statuses, n),
             top_order_names[view->order]);
    size_t width = view->width > 0 ? (size_t)view->width : SIZE_MAX;
    fprintf(out, "%.*s\n", (int)table_cut(line, width), line);
}

int top_frame_print(const struct top_view *view, json_t *const *statuses, size_t n, FILE *out)
{
    char *text = NULL;
    size_t len = 0;
    FILE *all = open_memstream(&text, &len);
    if (all == NULL)
        return -ENOMEM;
    int rc = 0;
    print_head(view, statuses, n, all);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        top_frame_sort(statuses[i], view->order);
        fputc('\n', all);
        rc = job_print_status(statuses[i], view->width, all);
    }
    if (fclose(all) != 0 || text == NULL)
        rc = -ENOMEM;
    if (rc == 0)
        print_first(text, view->height, out);
    free(text);
    return rc;
}
