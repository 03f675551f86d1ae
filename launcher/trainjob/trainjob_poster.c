/* trainjob_poster.c - read on_time() first: every 5 s it compares the steps with those that were
 * posted last, and start_post() hands the request to a thread of libuv's pool, since libcurl blocks
 * there. At most one is out. The token is read from its file for each post: Kubernetes replaces it.
 * A post that fails is reported once, and again only after one that was accepted. */
#include "trainjob_poster.h"

#include "launcher/platform/host_env.h"
#include "launcher/platform/plugin_path.h"
#include "trainjob_plugin.h"

#include "common/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HTTP_OK = 200, TEXT_BYTES = 512 };

struct trainjob_poster {
    uv_loop_t *loop;
    struct trainjob_user user; /* not after close */
    const struct trainjob_plugin *plugin;
    const char *url, *ca_cert, *token_file; /* of the environment */
    uv_timer_t timer;
    uv_work_t work;
    bool is_out, closing, timer_closed;
    bool is_known;                   /* `last`: what is to be posted */
    struct trainjob_progress last;   /* ... */
    struct trainjob_progress posted; /* what was posted last; 0 steps: nothing yet */
    bool has_failed;                 /* and that was reported */
    uint64_t timeout_ms;
    int status; /* of the post that has ended */
    char *token;
    size_t body_len;
    char body[TRAINJOB_BODY_BYTES];
    char why[TEXT_BYTES];
};

static bool is_news(const struct trainjob_poster *p)
{
    return p->is_known &&
           (p->last.steps != p->posted.steps || p->last.generation != p->posted.generation);
}

/* --- A post --- */

static void report(struct trainjob_poster *p)
{
    if (p->status == HTTP_OK) {
        p->has_failed = false;
        return;
    }
    char text[2 * TEXT_BYTES];
    snprintf(text, sizeof text,
             "the progress of the TrainJob was not posted to %.200s: %s; the job continues", p->url,
             p->why);
    if (!p->has_failed && !p->closing)
        p->user.warn(p->user.arg, text);
    p->has_failed = true;
}

static void free_when_closed(struct trainjob_poster *p)
{
    if (p->closing && p->timer_closed && !p->is_out)
        free(p);
}

static void drop_token(struct trainjob_poster *p)
{
    if (p->token != NULL)
        explicit_bzero(p->token, strlen(p->token));
    free(p->token);
    p->token = NULL;
}

static void on_posted(uv_work_t *work, int status)
{
    struct trainjob_poster *p = work->data;
    (void)status;
    p->is_out = false;
    drop_token(p);
    if (p->status != 0 && p->status != HTTP_OK)
        snprintf(p->why, sizeof p->why, "HTTP status %d", p->status);
    report(p);
    free_when_closed(p);
}

static void post(uv_work_t *work)
{
    struct trainjob_poster *p = work->data;
    const struct trainjob_request r = {.url = p->url,
                                       .ca_cert = p->ca_cert,
                                       .token = p->token,
                                       .body = p->body,
                                       .len = p->body_len,
                                       .timeout_ms = p->timeout_ms};
    p->status = p->plugin->post(&r, p->why);
}

static int read_token(struct trainjob_poster *p, struct co_error *err)
{
    size_t len = 0;
    int rc =
        host_env_real.read_file(NULL, p->token_file, TRAINJOB_TOKEN_MAX_BYTES, &p->token, &len);
    if (rc == 0 && len > TRAINJOB_TOKEN_MAX_BYTES) {
        p->token[0] = '\0';
        rc = -EFBIG;
    }
    if (rc < 0)
        return co_fail(err, rc, "cannot read '%.200s': %s", p->token_file, strerror(-rc));
    p->token[len] = '\0'; /* the buffer has a byte more than the file may have */
    return trainjob_token_trim(p->token, len, err);
}

static void start_post(struct trainjob_poster *p, uint64_t timeout_ms)
{
    struct co_error err = {0};
    p->status = 0;
    p->timeout_ms = timeout_ms;
    p->body_len = trainjob_body_make(&p->last, p->body);
    p->posted = p->last;
    int rc = read_token(p, &err);
    if (rc == 0 && (rc = uv_queue_work(p->loop, &p->work, post, on_posted)) < 0)
        co_fail(&err, rc, "%s", uv_strerror(rc));
    p->is_out = rc == 0;
    if (rc == 0)
        return;
    drop_token(p);
    snprintf(p->why, sizeof p->why, "%.300s", err.text);
    report(p);
}

static void on_time(uv_timer_t *timer)
{
    struct trainjob_poster *p = timer->data;
    if (p->is_out)
        return;
    trainjob_poster_look(p);
    if (is_news(p))
        start_post(p, TRAINJOB_POST_MS);
}

/* --- Beginning and end --- */

static int find_server(struct trainjob_poster *p, struct co_error *err)
{
    static const struct plugin_kind kind = {.file_name = "ddprun-trainjob.so",
                                            .symbol = TRAINJOB_PLUGIN_SYMBOL,
                                            .version = TRAINJOB_PLUGIN_VERSION,
                                            .failure = "cannot load the TrainJob plug-in",
                                            .remedy =
                                                "build ddprun with libcurl and -Dtrainjob=enabled"};
    const void *plugin;
    p->url = getenv("KUBEFLOW_TRAINER_SERVER_URL");
    p->ca_cert = getenv("KUBEFLOW_TRAINER_SERVER_CA_CERT");
    p->token_file = getenv("KUBEFLOW_TRAINER_SERVER_TOKEN");
    if (p->url == NULL || p->ca_cert == NULL || p->token_file == NULL)
        return co_fail(err, -ENOENT,
                       "KUBEFLOW_TRAINER_SERVER_URL, _CA_CERT, and _TOKEN are not set: enable the "
                       "feature gate TrainJobStatus of Kubeflow Trainer");
    int rc = plugin_load(&kind, &plugin, err);
    if (rc < 0)
        return rc;
    p->plugin = plugin;
    rc = p->plugin->init();
    return rc == 0 ? 0 : co_fail(err, rc, "libcurl cannot be initialized");
}

int trainjob_poster_open(uv_loop_t *loop, const struct trainjob_user *user,
                         struct trainjob_poster **ret, struct co_error *err)
{
    struct trainjob_poster *p = calloc(1, sizeof *p);
    if (p == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    const int rc = find_server(p, err);
    if (rc < 0) {
        free(p);
        return rc;
    }
    p->loop = loop;
    p->user = *user;
    p->timer.data = p->work.data = p;
    uv_timer_init(loop, &p->timer);
    uv_timer_start(&p->timer, on_time, TRAINJOB_EVERY_MS, TRAINJOB_EVERY_MS);
    uv_unref((uv_handle_t *)&p->timer);
    *ret = p;
    return 0;
}

void trainjob_poster_look(struct trainjob_poster *p)
{
    if (!p->user.read(p->user.arg, &p->last))
        return;
    p->is_known = true;
    p->last.now_s = time(NULL);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct trainjob_poster *p = handle->data;
    p->timer_closed = true;
    free_when_closed(p);
}

void trainjob_poster_close(struct trainjob_poster *p)
{
    if (p == NULL)
        return;
    if (!p->is_out && is_news(p))
        start_post(p, TRAINJOB_LAST_MS);
    p->closing = true;
    uv_close((uv_handle_t *)&p->timer, on_timer_closed);
}
