#include "results.h"

#include <stddef.h>

static void send_kind(struct peer *p, struct message_result result)
{
    const struct message m = {
        .type = MESSAGE_RESULT, .generation = MESSAGE_NO_GENERATION, .result = result};
    jobs_send(p, &m);
}

static bool is_of(const struct peer *p, const struct job *job)
{
    return p != NULL && p->job == job;
}

static bool may_write(const struct peer *p, const struct job *job)
{
    return is_of(p, job) && p->reports;
}

/* returns   NULL: none has --report */
static struct peer *choose_writer(const struct job *job)
{
    const struct jobs *j = job->jobs;
    struct roster_node_view node;
    struct peer *first = NULL;
    uint32_t first_index = 0;
    if (may_write(j->local, job))
        return j->local;
    for (uint32_t i = 0; i < roster_n_slots(job->roster); i++) {
        struct peer *p = roster_view(job->roster, i, &node) ? jobs_find_peer(j, node.link) : NULL;
        /* one that takes no part writes it only if no member does */
        const uint32_t index = p != NULL && node.is_member ? node.node_index : UINT32_MAX;
        if (may_write(p, job) && (first == NULL || index < first_index)) {
            first = p;
            first_index = index;
        }
    }
    return first;
}

static void ask(struct job *job, struct peer *p)
{
    const bool writes = p->link == job->writer_link;
    send_kind(p, (struct message_result){.kind = MESSAGE_RESULT_ASKED,
                                         .writes = writes,
                                         .stays = writes || p->conn == NULL});
    if (writes || p->owes_result) /* its own it has already */
        return;
    p->owes_result = true;
    job->n_owed++;
}

void results_begin(struct job *job)
{
    const struct jobs *j = job->jobs;
    if (job->has_asked || !roster_has_informed_all(job->roster))
        return;
    job->has_asked = true;
    const struct peer *writer = j->opts.on_result == NULL ? choose_writer(job) : NULL;
    job->writer_link = writer != NULL ? writer->link : 0;
    job->wants_results = writer != NULL || j->opts.on_result != NULL;
    for (uint32_t i = 0; job->wants_results && i < j->n_slots; i++)
        if (is_of(j->peers[i], job))
            ask(job, j->peers[i]);
}

void results_begin_late(struct peer *p)
{
    struct job *job = p->job;
    if (!job->wants_results)
        return;
    if (job->jobs->opts.on_result == NULL && p->reports && !job->all_in &&
        jobs_find_peer(job->jobs, job->writer_link) == NULL)
        job->writer_link = p->link; /* its link had ended, most likely */
    ask(job, p);
}

static void pass_on(struct job *job, const struct message *m)
{
    const struct jobs *j = job->jobs;
    struct message copy = *m;
    struct peer *writer = jobs_find_peer(j, job->writer_link);
    if (copy.result.n_ranks > RESULTS_MAX_RANKS - job->n_result_ranks)
        copy.result.n_ranks = 0;
    job->n_result_ranks += (uint32_t)copy.result.n_ranks;
    if (j->opts.on_result != NULL)
        j->opts.on_result(j->opts.arg, &copy);
    else if (writer != NULL)
        jobs_send(writer, &copy);
}

void results_take(struct peer *p, const struct message *m)
{
    struct job *job = p->job;
    if (!p->owes_result || m->result.kind != MESSAGE_RESULT_RANKS)
        return;
    results_forget(p);
    pass_on(job, m);
}

void results_forget(struct peer *p)
{
    if (p->owes_result)
        p->job->n_owed--;
    p->owes_result = false;
}

void results_settle(struct job *job)
{
    const struct jobs *j = job->jobs;
    struct peer *writer = jobs_find_peer(j, job->writer_link);
    if (!job->wants_results || job->all_in || job->n_owed > 0)
        return;
    job->all_in = true;
    if (writer != NULL)
        send_kind(writer, (struct message_result){.kind = MESSAGE_RESULT_ALL});
    if (is_of(j->local, job) && j->local != writer)
        send_kind(j->local, (struct message_result){.kind = MESSAGE_RESULT_ALL});
}
