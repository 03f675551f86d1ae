#include "job_usage.h"

#include "common/process.h"

#include <stdlib.h>

void job_usage_fini(struct job_usage *u)
{
    free(u->ranks);
    *u = (struct job_usage){0};
}

/* The place of a pid; a new one if it has none. returns NULL without memory */
static struct job_usage_rank *find_rank(struct job_usage *u, pid_t pid)
{
    for (size_t i = 0; i < u->n; i++)
        if (u->ranks[i].pid == pid)
            return &u->ranks[i];
    struct job_usage_rank *ranks = realloc(u->ranks, (u->n + 1) * sizeof *ranks);
    if (ranks == NULL)
        return NULL;
    u->ranks = ranks;
    u->ranks[u->n] = (struct job_usage_rank){.pid = pid};
    return &u->ranks[u->n++];
}

static double percent(uint64_t cpu_ms, uint64_t over_ms)
{
    return over_ms > 0 ? 100.0 * (double)cpu_ms / (double)over_ms : 0;
}

static double cpu_percent(struct job_usage *u, pid_t pid, const struct co_process *p,
                          uint64_t age_ms, uint64_t now_ms)
{
    struct job_usage_rank *before = u != NULL ? find_rank(u, pid) : NULL;
    double result = percent(p->cpu_ms, age_ms);
    if (before == NULL)
        return result;
    if (before->start_ticks == p->start_ticks && now_ms > before->at_ms &&
        p->cpu_ms >= before->cpu_ms)
        result = percent(p->cpu_ms - before->cpu_ms, now_ms - before->at_ms);
    *before = (struct job_usage_rank){pid, p->start_ticks, p->cpu_ms, now_ms};
    return result;
}

void job_usage_add(struct job_usage *u, json_t *status, uint64_t now_ms)
{
    size_t i;
    json_t *rank;
    json_array_foreach(json_object_get(status, "ranks"), i, rank)
    {
        struct co_process p;
        json_int_t pid = json_integer_value(json_object_get(rank, "pid"));
        const json_t *code = json_object_get(rank, "exit_code");
        const json_t *signal = json_object_get(rank, "signal");
        if (pid <= 0 || pid > INT32_MAX || json_is_integer(code) || json_is_integer(signal) ||
            co_process_look((pid_t)pid, &p, NULL) < 0)
            continue;
        char state[2] = {p.state, '\0'};
        json_int_t age_ms = json_integer_value(json_object_get(rank, "age_ms"));
        double cpu = cpu_percent(u, (pid_t)pid, &p, age_ms > 0 ? (uint64_t)age_ms : 0, now_ms);
        json_object_set_new(rank, "cpu_percent", json_real(cpu));
        json_object_set_new(rank, "cpu_ms", json_integer((json_int_t)p.cpu_ms));
        json_object_set_new(rank, "rss_bytes", json_integer((json_int_t)p.rss_bytes));
        json_object_set_new(rank, "threads", json_integer(p.n_threads));
        json_object_set_new(rank, "process_state", json_string(state));
    }
}
