/* jobs_input.c - what comes from nodes: connections, the link within this process, and messages. */
#include "jobs_priv.h"

#include "common/error.h"
#include "rendezvous/channel/seal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* --- messages --- */

static void peer_refuse(struct peer *p, enum message_refusal why, bool again, const char *text)
{
    const struct message m = {.type = MESSAGE_REFUSED,
                              .generation = MESSAGE_NO_GENERATION,
                              .refused = {.why = why, .again = again, .text = text}};
    jobs_note(p->jobs, text);
    jobs_send(p, &m);
    jobs_end_peer(p);
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
        snprintf(text, sizeof text, "%s belongs to the job '%s', here is '%s'", hello->name,
                 hello->run_id, j->opts.only_run_id);
        peer_refuse(p, MESSAGE_REFUSED_OTHER_JOB, false, text);
        return false;
    }
    int rc = jobs_make_job(j, hello->run_id, &hello->terms, &p->job, &err);
    if (rc < 0) {
        snprintf(text, sizeof text, "%s of the job '%s' is refused: %.400s", hello->name,
                 hello->run_id, err.text);
        peer_refuse(p, rc == -EINVAL ? MESSAGE_REFUSED_TERMS : MESSAGE_REFUSED_FULL, rc == -ENOSPC,
                    text);
    }
    return rc == 0;
}

/* The same. */
static bool find_job(struct peer *p, const struct message_hello *hello)
{
    struct job *job = jobs_find_job(p->jobs, hello->run_id);
    if (job != NULL && begins_again(job, hello)) {
        if (!job->is_over) {
            peer_refuse(p, MESSAGE_REFUSED_FULL, true, "the job's last run is still being stopped");
            return false;
        }
        jobs_close_job(job);
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

static void on_peer_message(struct peer *p, const struct message *m)
{
    if (p->job == NULL && m->type != MESSAGE_HELLO) {
        jobs_note(p->jobs, "a control connection did not begin with a HELLO");
        jobs_end_peer(p);
        return;
    }
    if (p->job == NULL && !find_job(p, &m->hello))
        return;
    struct job *job = p->job; /* p may go in the step */
    jobs_step(job, &(struct roster_input){.type = ROSTER_MESSAGE,
                                          .link = p->link,
                                          .local = p->conn == NULL && !p->jobs->opts.outlives_local,
                                          .message = m});
    note_late(job, m);
}

/* Its link has ended, whoever ended it. */
static void lose_peer(struct peer *p)
{
    struct job *job = p->job;
    uint64_t link = p->link;
    jobs_free_peer(p);
    if (job != NULL)
        jobs_step(job, &(struct roster_input){.type = ROSTER_GONE, .link = link});
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
    if (j->local != NULL) /* its end is on the way here; nobody asks for that any more */
        lose_peer(j->local);
    j->local = jobs_make_peer(j);
    if (j->local == NULL)
        return co_fail(err, -ENOMEM, "no memory for a link to the roster");
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
    (void)arg; /* the node speaks first */
}

static void on_message(void *arg, const struct message *m)
{
    on_peer_message(arg, m);
}

static void on_end(void *arg, int code, const char *text)
{
    struct peer *p = arg;
    char line[CO_ERROR_TEXT_BYTES], from[CHANNEL_CONN_PEER_BYTES];
    /* who only looked whether somebody is here has done nothing wrong */
    if (code != -ECONNRESET && code != -EPIPE) {
        channel_conn_peer(p->conn, from);
        snprintf(line, sizeof line, "control connection from %s: %.600s", from, text);
        jobs_note(p->jobs, line);
    }
    lose_peer(p);
}

void jobs_adopt(struct jobs *j, int fd, const uint8_t *bytes, size_t len)
{
    struct co_error err = {0};
    struct seal *seal;
    bool may_come = !j->closing && j->conns.n_conns < j->opts.max_conns;
    struct peer *p = may_come ? jobs_make_peer(j) : NULL;
    if (p == NULL) {
        jobs_note(j, "a control connection is refused: there are too many, or no memory");
        close(fd);
        return;
    }
    const struct channel_conn_callbacks callbacks = {
        .on_open = on_open, .on_message = on_message, .on_end = on_end, .arg = p};
    int rc = seal_create_roster(j->opts.keys, j->opts.n_keys, CHANNEL_WIRE_VERSION,
                                CHANNEL_WIRE_VERSION, &seal, &err);
    if (rc < 0)
        close(fd);
    else
        rc = channel_conn_adopt(&j->conns, seal, fd, bytes, len, &callbacks, &p->conn, &err);
    if (rc < 0) {
        jobs_note(j, err.text);
        jobs_free_peer(p);
    }
}
