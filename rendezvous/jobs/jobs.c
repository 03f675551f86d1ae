/* jobs.c - the jobs of an endpoint, their rosters, their time, and their end.
 *
 * Read step_job() first. Every input comes there: a message or the end of a connection,
 * the timer, and what this process itself reports (jobs_tell(), jobs_end()).
 * roster_step() decides, carry_out() sends the messages or reports a change,
 * set_timer() waits for the roster's next deadline, and retire_if_empty() forgets a job without
 * nodes. A step may end peers, and with them the peer whose message it was. */
#include "figures.h"
#include "results.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/hash.h"
#include "rendezvous/channel/seal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DEFAULT_MAX_JOBS = 1024,
    KEEP_MS = 60000,
    NOTE_EVERY_MS = 1000,
    ASLEEP_MS = 1000, /* a timer that is this late means that the process was not running */
};

/* Count a refusal, and report it if the last report was a while ago. */
static void note_text(struct jobs *j, const char *text)
{
    uint64_t now_ms = uv_now(j->loop);
    j->n_refused++;
    if (j->opts.on_note == NULL || j->closing || now_ms < j->next_note_ms)
        return;
    j->next_note_ms = now_ms + NOTE_EVERY_MS;
    j->opts.on_note(j->opts.arg, text);
}

/* --- peers --- */

static int find_slot(struct jobs *j, uint32_t *ret_slot)
{
    for (uint32_t i = 0; i < j->n_slots && j->n_peers < j->n_slots; i++) {
        uint32_t slot = (uint32_t)((j->n_links + i) % j->n_slots);
        if (j->peers[slot] == NULL) {
            *ret_slot = slot;
            return 0;
        }
    }
    uint32_t n_slots = j->n_slots == 0 ? 16 : j->n_slots * 2;
    struct peer **peers = realloc(j->peers, n_slots * sizeof *peers);
    if (peers == NULL)
        return -ENOMEM;
    memset(peers + j->n_slots, 0, (n_slots - j->n_slots) * sizeof *peers);
    *ret_slot = j->n_slots;
    j->peers = peers;
    j->n_slots = n_slots;
    return 0;
}

static struct peer *make_peer(struct jobs *j)
{
    uint32_t slot;
    if (find_slot(j, &slot) < 0)
        return NULL;
    struct peer *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->jobs = j;
    p->link = ++j->n_links << SLOT_BITS | slot;
    j->peers[slot] = p;
    j->n_peers++;
    return p;
}

static void free_peer(struct peer *p)
{
    struct jobs *j = p->jobs;
    results_forget(p);
    newcomers_remove(&j->unproven, &p->unproven);
    j->peers[p->link & ((1u << SLOT_BITS) - 1)] = NULL;
    j->n_peers--;
    if (j->local == p)
        j->local = NULL;
    free(p);
}

static void end_peer(struct peer *p)
{
    if (p->conn != NULL)
        channel_conn_end(p->conn);
    else
        channel_pipe_shut(&p->jobs->pipe, CHANNEL_PIPE_ROSTER);
    free_peer(p);
}

/* --- a job's time --- */

static void set_timer(struct job *job);
static void step_job(struct job *job, struct roster_input *in);

/* What was received before the deadline is read first: the sockets have their turn between the two
 * expiries. */
static void on_timer(uv_timer_t *timer)
{
    struct job *job = timer->data;
    uint64_t deadline_ms = roster_deadline_ms(job->roster);
    if (!job->is_due) {
        job->is_due = true;
        if (deadline_ms != CO_NEVER_MS && co_now_ms() > deadline_ms + ASLEEP_MS)
            step_job(job, &(struct roster_input){.type = ROSTER_ASLEEP});
        if (!job->closing && !job->is_over)
            uv_timer_start(&job->timer, on_timer, 0, 0);
        return;
    }
    job->is_due = false;
    step_job(job, &(struct roster_input){.type = ROSTER_TIME});
}

static void set_timer(struct job *job)
{
    uint64_t deadline_ms = roster_deadline_ms(job->roster), now_ms = co_now_ms();
    if (job->closing || job->is_due || job->is_over)
        return;
    if (deadline_ms == CO_NEVER_MS) {
        uv_timer_stop(&job->timer);
        return;
    }
    uv_update_time(job->jobs->loop);
    uv_timer_start(&job->timer, on_timer, deadline_ms > now_ms ? deadline_ms - now_ms : 0, 0);
}

/* --- jobs --- */

static void destroy_if_closed(struct jobs *j)
{
    if (!j->closing || j->n_handles > 0 || j->conns.n_conns > 0)
        return;
    void (*on_closed)(void *arg) = j->on_closed;
    void *arg = j->on_closed_arg;
    channel_conn_host_fini(&j->conns);
    free(j->peers);
    free(j);
    if (on_closed != NULL)
        on_closed(arg);
}

static void on_conn_gone(struct channel_conn_host *h)
{
    destroy_if_closed((struct jobs *)((char *)h - offsetof(struct jobs, conns)));
}

static void on_job_closed(uv_handle_t *handle)
{
    struct job *job = handle->data;
    struct jobs *j = job->jobs;
    roster_destroy(job->roster);
    verdict_log_fini(&job->verdict_log);
    free(job);
    j->n_handles--;
    destroy_if_closed(j);
}

/* No connection leads to it any more. */
static void end_peers_of(struct job *job)
{
    struct jobs *j = job->jobs;
    for (uint32_t i = 0; i < j->n_slots; i++)
        if (j->peers[i] != NULL && j->peers[i]->job == job)
            end_peer(j->peers[i]);
}

/* Forget the job now, with the connections that led to it; the loop frees it. */
static void close_job(struct job *job)
{
    struct jobs *j = job->jobs;
    struct job **at = &j->first;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    end_peers_of(job);
    j->n_jobs--;
    job->closing = true;
    uv_close((uv_handle_t *)&job->timer, on_job_closed);
}

static void on_kept(uv_timer_t *timer)
{
    close_job(timer->data);
}

static struct job *find_job(const struct jobs *j, const char *run_id)
{
    struct job *job = j->first;
    while (job != NULL && strcmp(job->run_id, run_id) != 0)
        job = job->next;
    return job;
}

/* returns   0, -ENOSPC (there are too many), -EINVAL (terms), -ENOMEM */
static int make_job(struct jobs *j, const char *run_id, const struct message_terms *terms,
                    struct job **ret, struct co_error *err)
{
    const struct jobs_opts *o = &j->opts;
    if (j->n_jobs >= o->max_jobs)
        return co_fail(err, -ENOSPC,
                       "the rendezvous endpoint already manages %u jobs, its maximum: raise "
                       "ddp-rendezvous --max-jobs",
                       j->n_jobs);
    struct job *job = calloc(1, sizeof *job + strlen(run_id) + 1);
    if (job == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int rc = roster_create(&o->limits, terms, o->expected, o->n_expected, co_now_ms(), &job->roster,
                           err);
    if (rc == 0 && o->past != NULL)
        rc = roster_resume(job->roster, o->past, co_now_ms(), err);
    if (rc < 0) {
        roster_destroy(job->roster);
        free(job);
        return rc;
    }
    strcpy(job->run_id, run_id);
    job->jobs = j;
    job->timer.data = job;
    uv_timer_init(j->loop, &job->timer);
    j->n_handles++;
    j->n_jobs++;
    j->n_made++;
    job->next = j->first;
    j->first = job;
    set_timer(job);
    *ret = job;
    return 0;
}

/* All members have been informed of the end at once, or have announced their leave. */
static void note_informed(struct job *job)
{
    struct roster_node_view node;
    for (uint32_t i = 0; i < roster_n_slots(job->roster); i++)
        if (roster_view(job->roster, i, &node))
            verdict_log_add(&job->verdict_log, node.instance, node.name);
}

static void note_change(struct job *job, const struct roster_action *a)
{
    const struct jobs_opts *o = &job->jobs->opts;
    if (a->to == ROSTER_CLOSED && o->only_run_id == NULL)
        note_informed(job);
    if (o->on_changed != NULL)
        o->on_changed(o->arg, job->run_id, job->roster, a->from);
}

/* Only a final refusal: a node that may join later is not worth a line. */
static void note_refusal(struct job *job, const struct message *m)
{
    char text[CO_ERROR_TEXT_BYTES];
    if (m->type != MESSAGE_REFUSED || m->refused.again)
        return;
    snprintf(text, sizeof text, "job '%.200s': refused: %.600s", job->run_id, m->refused.text);
    note_text(job->jobs, text);
}

static void carry_out(struct job *job, const struct roster_action *a)
{
    struct jobs *j = job->jobs;
    struct peer *p = jobs_find_peer(j, a->link);
    if (a->type == ROSTER_CHANGED) {
        note_change(job, a);
    } else if (p == NULL) {
        return; /* it has gone meanwhile */
    } else if (a->type == ROSTER_SEND) {
        note_refusal(job, &a->message);
        jobs_send(p, &a->message);
    } else {
        end_peer(p);
    }
}

/* No node takes part any more. A job that is over is kept for late nodes, and forgotten afterwards.
 * One that is not over is forgotten at once: nothing is left of its state, and a node that joins
 * may want other terms. */
static void retire_if_empty(struct job *job)
{
    if (job->is_over || job->jobs->opts.only_run_id != NULL || roster_n_nodes(job->roster) > 0)
        return;
    if (roster_get_state(job->roster) != ROSTER_CLOSED) {
        close_job(job);
        return;
    }
    job->is_over = true;
    uv_timer_start(&job->timer, on_kept, KEEP_MS, 0);
}

/* Feed the roster, the time filled in, and carry out what follows. That may end peers and close the
 * job. */
static void step_job(struct job *job, struct roster_input *in)
{
    struct roster_actions actions;
    if (job->closing)
        return;
    in->now_ms = co_now_ms();
    roster_step(job->roster, in, &actions);
    results_begin(job);
    for (size_t i = 0; i < actions.n; i++)
        carry_out(job, &actions.items[i]);
    results_settle(job);
    if (job->jobs->opts.on_heard != NULL)
        job->jobs->opts.on_heard(job->jobs->opts.arg, job->roster);
    set_timer(job);
    retire_if_empty(job);
}

void jobs_tell(struct jobs *j, enum roster_input_type type)
{
    if (j->first != NULL)
        step_job(j->first, &(struct roster_input){.type = type});
}

void jobs_tell_confirmed(struct jobs *j, uint32_t generation, uint64_t term)
{
    if (j->first != NULL)
        step_job(j->first, &(struct roster_input){
                               .type = ROSTER_CONFIRMED, .generation = generation, .term = term});
}

void jobs_tell_certain(struct jobs *j, uint64_t until_ms)
{
    if (j->first != NULL)
        step_job(j->first, &(struct roster_input){.type = ROSTER_CERTAIN, .until_ms = until_ms});
}

void jobs_tell_ended(struct jobs *j, uint32_t generation, uint32_t node_index)
{
    if (j->first != NULL)
        step_job(j->first, &(struct roster_input){.type = ROSTER_ENDED,
                                                  .generation = generation,
                                                  .node_index = node_index});
}

void jobs_tell_replaced(struct jobs *j, const char *text)
{
    if (j->first != NULL)
        step_job(j->first, &(struct roster_input){.type = ROSTER_REPLACED, .text = text});
}

bool jobs_view_local(const struct jobs *j, struct roster_node_view *ret)
{
    return j->first != NULL && j->local != NULL &&
           roster_view_link(j->first->roster, j->local->link, ret);
}

void jobs_end(struct jobs *j, uint8_t exit_code, const char *text)
{
    const struct message m = {.type = MESSAGE_END,
                              .generation = MESSAGE_NO_GENERATION,
                              .verdict = {.outcome = MESSAGE_ENDED,
                                          .exit_code = exit_code,
                                          .rank = MESSAGE_NO_RANK,
                                          .node = "",
                                          .text = text}};
    if (j->first != NULL)
        step_job(j->first, &(struct roster_input){.type = ROSTER_END, .message = &m});
}

uint32_t jobs_n_uninformed(const struct jobs *j)
{
    struct roster_node_view node;
    uint32_t n = 0;
    for (uint32_t i = 0; j->first != NULL && i < roster_n_slots(j->first->roster); i++)
        n += roster_view(j->first->roster, i, &node) && !node.here && !node.leaves;
    return n;
}

uint32_t jobs_n_owed(const struct jobs *j)
{
    return j->first != NULL ? j->first->n_owed : 0;
}

/* --- the whole --- */

static void on_pipe_closed(struct channel_pipe *pipe)
{
    struct jobs *j = (struct jobs *)((char *)pipe - offsetof(struct jobs, pipe));
    j->n_handles--;
    destroy_if_closed(j);
}

static void on_heartbeats_closed(void *arg)
{
    struct jobs *j = arg;
    j->n_handles--;
    destroy_if_closed(j);
}

int jobs_create(uv_loop_t *loop, const struct jobs_opts *opts, struct jobs **ret_jobs,
                struct co_error *err)
{
    struct jobs *j = calloc(1, sizeof *j);
    struct job *job;
    if (j == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    j->loop = loop;
    j->opts = *opts;
    if (j->opts.max_jobs == 0)
        j->opts.max_jobs = DEFAULT_MAX_JOBS;
    if (j->opts.max_conns == 0 || j->opts.max_conns > JOBS_MAX_CONNS)
        j->opts.max_conns = JOBS_MAX_CONNS;
    int rc = channel_conn_host_init(&j->conns, loop, err);
    if (rc == 0 && channel_pipe_init(&j->pipe, loop) < 0)
        rc = co_fail(err, -ENOMEM, "out of memory");
    if (rc < 0) {
        channel_conn_host_fini(&j->conns);
        free(j);
        return rc;
    }
    j->unproven.seed = co_hash_seed();
    j->conns.on_gone = on_conn_gone;
    j->conns.max_buffer_bytes = opts->max_buffer_bytes;
    if (opts->mid_frame_ms != 0)
        j->conns.mid_frame_ms = opts->mid_frame_ms;
    j->n_handles = 1;
    if (opts->only_run_id != NULL)
        rc = make_job(j, opts->only_run_id, opts->terms, &job, err);
    if (rc < 0) {
        jobs_close(j, NULL, NULL);
        return rc;
    }
    *ret_jobs = j;
    return 0;
}

void jobs_get_figures(const struct jobs *j, struct jobs_figures *ret)
{
    *ret = (struct jobs_figures){
        .n_jobs = j->n_jobs,
        .max_jobs = j->opts.max_jobs,
        .n_conns = j->conns.n_conns,
        .max_conns = j->opts.max_conns,
        .n_made = j->n_made,
        .n_refused = j->n_refused,
        .n_buffer_bytes = j->conns.n_buffer_bytes,
        .max_buffer_bytes = j->conns.max_buffer_bytes,
    };
}

void jobs_each(const struct jobs *j,
               void (*on_job)(void *arg, const char *run_id, const struct roster *r), void *arg)
{
    for (const struct job *job = j->first; job != NULL; job = job->next)
        on_job(arg, job->run_id, job->roster);
}

void jobs_close(struct jobs *j, void (*on_closed)(void *arg), void *arg)
{
    j->closing = true;
    j->on_closed = on_closed;
    j->on_closed_arg = arg;
    for (uint32_t i = 0; i < j->n_slots; i++) {
        if (j->peers[i] != NULL)
            end_peer(j->peers[i]);
    }
    while (j->first != NULL)
        close_job(j->first);
    if (j->heartbeats != NULL)
        heartbeats_close(j->heartbeats, on_heartbeats_closed, j);
    channel_pipe_close(&j->pipe, on_pipe_closed);
}

/* --- messages --- */

static void peer_refuse(struct peer *p, enum message_refusal why, bool again, const char *text)
{
    const struct message m = {.type = MESSAGE_REFUSED,
                              .generation = MESSAGE_NO_GENERATION,
                              .refused = {.why = why, .again = again, .text = text}};
    note_text(p->jobs, text);
    jobs_send(p, &m);
    end_peer(p);
}

/* The job as it was before is over for this node, which begins it once more. */
static bool begins_again(const struct job *job, const struct message_hello *hello)
{
    return roster_get_state(job->roster) == ROSTER_CLOSED &&
           verdict_log_missed(&job->verdict_log, hello->instance, hello->name);
}

/* Returns whether the peer has a job now; else it is refused. */
static bool begin_job(struct peer *p, const struct message_hello *hello)
{
    struct jobs *j = p->jobs;
    struct co_error err = {0};
    char text[CO_ERROR_TEXT_BYTES];
    if (j->opts.only_run_id != NULL) {
        snprintf(text, sizeof text,
                 "%s belongs to job '%s', but this endpoint serves job '%s': use the same "
                 "--rdzv-id on all nodes, or another --rdzv-endpoint",
                 hello->name, hello->run_id, j->opts.only_run_id);
        peer_refuse(p, MESSAGE_REFUSED_OTHER_JOB, false, text);
        return false;
    }
    int rc = make_job(j, hello->run_id, &hello->terms, &p->job, &err);
    if (rc < 0) {
        snprintf(text, sizeof text, "%s of job '%s' was refused: %.400s", hello->name,
                 hello->run_id, err.text);
        peer_refuse(p, rc == -EINVAL ? MESSAGE_REFUSED_TERMS : MESSAGE_REFUSED_FULL, rc == -ENOSPC,
                    text);
    }
    return rc == 0;
}

/* The same. */
static bool enter_job(struct peer *p, const struct message_hello *hello)
{
    struct job *job = find_job(p->jobs, hello->run_id);
    if (job != NULL && begins_again(job, hello)) {
        if (!job->is_over) {
            peer_refuse(p, MESSAGE_REFUSED_FULL, true,
                        "the previous run of this job is still stopping");
            return false;
        }
        close_job(job);
        job = NULL;
    }
    p->job = job;
    return job != NULL || begin_job(p, hello);
}

/* A late node hears the verdict at once. */
static void note_late(struct job *job, const struct message *m)
{
    if (m->type == MESSAGE_HELLO && !job->closing && job->jobs->opts.only_run_id == NULL &&
        roster_get_state(job->roster) == ROSTER_CLOSED)
        verdict_log_add(&job->verdict_log, m->hello.instance, m->hello.name);
}

/* Each absent node takes memory, and is expected to connect: all of them, of all jobs, are no more
 * than connections are taken. A node in this process would be one that others have lost. */
static uint32_t max_absent(const struct jobs *j, const struct message *m)
{
    uint32_t n_slots = 0;
    if (m->type != MESSAGE_HELLO || !m->hello.was.is_known || j->opts.only_run_id != NULL)
        return 0;
    for (const struct job *job = j->first; job != NULL; job = job->next)
        n_slots += roster_n_slots(job->roster);
    return n_slots < j->opts.max_conns ? j->opts.max_conns - n_slots : 0;
}

/* The spawner there has suspended the ranks before: a node that was lost has no heartbeats. */
static void on_silent(void *arg, const uint8_t *instance)
{
    struct jobs *j = arg;
    struct job *job = j->first;
    if (job != NULL && !job->closing)
        step_job(job, &(struct roster_input){.type = ROSTER_SILENT,
                                             .instance = instance,
                                             .silent_ms = j->opts.host_silent_ms});
    if (job == NULL || job->closing || !roster_has_instance(job->roster, instance))
        heartbeats_forget(j->heartbeats, instance);
}

static bool has_heartbeats(struct jobs *j)
{
    if (j->heartbeats == NULL && !j->closing) {
        j->heartbeats = heartbeats_create(j->loop, j->opts.host_silent_ms, on_silent, j);
        j->n_handles += j->heartbeats != NULL;
    }
    return j->heartbeats != NULL;
}

/* A node that counts with another limit relies on its lease alone. */
static bool may_have_heartbeats(struct peer *p, const struct message_heartbeat *h)
{
    struct jobs *j = p->jobs;
    const struct job *job = find_job(j, h->run_id);
    return j->opts.host_silent_ms != 0 && h->limit_ms == j->opts.host_ms && p->conn != NULL &&
           job != NULL && roster_has_instance(job->roster, h->instance) && has_heartbeats(j) &&
           heartbeats_n(j->heartbeats) < HEARTBEATS_MAX;
}

/* The connection carries nothing but heartbeats from now on. */
static void take_heartbeats(struct peer *p, const struct message *m)
{
    struct jobs *j = p->jobs;
    if (!may_have_heartbeats(p, &m->heartbeat)) {
        peer_refuse(p, MESSAGE_REFUSED_TERMS, false,
                    "heartbeats were refused: --rdzv-conf host_timeout differs between the nodes, "
                    "there are too many of them, or the node is not known here");
        return;
    }
    jobs_send(p, m);
    const int fd = channel_conn_detach(p->conn);
    if (fd < 0) {
        end_peer(p);
        return;
    }
    free_peer(p);
    if (heartbeats_add(j->heartbeats, fd, m->heartbeat.instance) < 0)
        note_text(j, "refused a connection for heartbeats: too many, or out of memory");
}

static void on_peer_message(struct peer *p, const struct message *m)
{
    if (p->job == NULL && m->type == MESSAGE_HEARTBEAT) {
        take_heartbeats(p, m);
        return;
    }
    if (p->job == NULL && m->type != MESSAGE_HELLO) {
        note_text(p->jobs, "a control connection did not start with a HELLO");
        end_peer(p);
        return;
    }
    if (p->job == NULL && !enter_job(p, &m->hello))
        return;
    struct job *job = p->job; /* p may go in the step */
    if (m->type == MESSAGE_RESULT) {
        results_take(p, m);
        results_settle(job);
        return;
    }
    if (m->type == MESSAGE_FIGURES) {
        figures_take(p, m);
        return;
    }
    if (m->type == MESSAGE_HELLO) {
        p->reports = m->hello.reports;
        results_begin_late(p);
    }
    step_job(job, &(struct roster_input){.type = ROSTER_MESSAGE,
                                         .link = p->link,
                                         .local = p->conn == NULL && !p->jobs->opts.outlives_local,
                                         .message = m,
                                         .max_absent = max_absent(p->jobs, m)});
    note_late(job, m);
}

/* Its link has ended, whichever side ended it. */
static void lose_peer(struct peer *p)
{
    struct job *job = p->job;
    uint64_t link = p->link;
    free_peer(p);
    if (job != NULL)
        step_job(job, &(struct roster_input){.type = ROSTER_GONE, .link = link});
}

/* --- the node in this process --- */

static void on_local(void *arg, const struct message *m)
{
    struct jobs *j = arg;
    if (j->local == NULL)
        return;
    if (m != NULL)
        on_peer_message(j->local, m);
    else
        lose_peer(j->local);
}

int jobs_local_up(struct jobs *j, channel_pipe_take on_message, void *arg, struct co_error *err)
{
    assert(j->opts.only_run_id != NULL);
    if (j->local != NULL) /* its end is being reported; no caller needs it any more */
        lose_peer(j->local);
    j->local = make_peer(j);
    if (j->local == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    channel_pipe_open(&j->pipe, on_local, j, on_message, arg);
    return 0;
}

void jobs_local_send(struct jobs *j, const struct message *m)
{
    channel_pipe_send(&j->pipe, CHANNEL_PIPE_NODE, m);
}

void jobs_local_down(struct jobs *j)
{
    channel_pipe_shut(&j->pipe, CHANNEL_PIPE_NODE);
}

/* --- connections --- */

static void on_open(void *arg)
{
    struct peer *p = arg; /* the node speaks first */
    newcomers_remove(&p->jobs->unproven, &p->unproven);
}

static void on_message(void *arg, const struct message *m)
{
    on_peer_message(arg, m);
}

static void on_end(void *arg, int code, const char *text)
{
    struct peer *p = arg;
    char line[CO_ERROR_TEXT_BYTES], from[CHANNEL_CONN_PEER_BYTES];
    /* a peer that only checked whether a process listens here has done nothing wrong */
    if (code != -ECONNRESET && code != -EPIPE) {
        channel_conn_peer(p->conn, from);
        snprintf(line, sizeof line, "control connection from %s: %.600s", from, text);
        note_text(p->jobs, line);
    }
    lose_peer(p);
}

/* Nodes that have proved that they know the token stay; of the others, one makes way. */
static bool has_slot(struct jobs *j)
{
    char text[CO_ERROR_TEXT_BYTES], from[CHANNEL_CONN_PEER_BYTES];
    while (!j->closing && j->conns.n_open >= j->opts.max_conns) {
        struct newcomer *chosen = newcomers_choose(&j->unproven);
        if (chosen == NULL)
            return false;
        struct peer *p = (struct peer *)((char *)chosen - offsetof(struct peer, unproven));
        channel_conn_peer(p->conn, from);
        snprintf(text, sizeof text,
                 "control connection from %s: closed: it has not authenticated, and %u connections "
                 "are open, the maximum",
                 from, j->opts.max_conns);
        note_text(j, text);
        end_peer(p);
    }
    return !j->closing;
}

void jobs_adopt(struct jobs *j, int fd, const uint8_t *bytes, size_t len)
{
    struct co_error err = {0};
    struct seal *seal;
    struct sockaddr_storage from = {0};
    socklen_t from_len = sizeof from;
    struct peer *p = has_slot(j) ? make_peer(j) : NULL;
    if (p == NULL) {
        note_text(j, "refused a control connection: too many connections, or out of memory");
        close(fd);
        return;
    }
    getpeername(fd, (struct sockaddr *)&from, &from_len); /* gone: of no network */
    const struct channel_conn_callbacks callbacks = {
        .on_open = on_open, .on_message = on_message, .on_end = on_end, .arg = p};
    int rc = seal_create_roster(j->opts.keys, j->opts.n_keys, CHANNEL_WIRE_VERSION,
                                CHANNEL_WIRE_VERSION, &seal, &err);
    if (rc < 0)
        close(fd);
    else
        rc = channel_conn_adopt(&j->conns, seal, fd, bytes, len, &callbacks, &p->conn, &err);
    if (rc < 0) {
        note_text(j, err.text);
        free_peer(p);
    } else {
        newcomers_add(&j->unproven, &p->unproven, &from);
    }
}
