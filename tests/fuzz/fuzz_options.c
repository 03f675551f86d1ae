/* Any words as ddprun's command line.
 *
 * The input: lines; the first is "E" and variables, separated by tabs, if it begins so; the others
 * are argv. The world around is a TEST DOUBLE (tests/support/fake_host_env.h), so that no file is
 * touched and nothing is executed. */
#include "common/error.h"
#include "fuzz.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/rank_argv.h"
#include "launcher/job/worker_env.h"
#include "launcher/options/cli.h"
#include "tests/support/fake_host_env.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 2000 };

/* Cut text at each `at` into words, NULL-terminated; words that find no place are dropped.
 * returns how many */
static int cut(char *text, char at, char **words)
{
    int n = 0;
    while (text != NULL && n < WORDS_MAX - 1) {
        words[n++] = text;
        text = strchr(text, at);
        if (text != NULL)
            *text++ = '\0';
    }
    words[n] = NULL;
    return n;
}

static void check_world(const struct job_spec *spec)
{
    const struct job_world *w = &spec->world;
    require(w->has_others || (spec->master_addr[0] != '\0' && w->max_nodes == 1));
    if (!w->has_others)
        return;
    require(w->min_nodes >= 1 && w->min_nodes <= w->max_nodes && w->max_nodes <= MESSAGE_MAX_NODES);
    require(w->start_timeout_ms > 0 && (w->keep_alive_ms == 0) == (w->lease_ms == 0));
    require(w->lease_ms == 0 || w->lease_ms > w->keep_alive_ms);
    require(w->node_rank >= MESSAGE_NO_RANK && w->node_rank < (int32_t)w->max_nodes);
    require(w->endpoint_host[0] != '\0' && strlen(w->endpoint_host) < MESSAGE_HOST_BYTES);
    require(w->endpoint_port != 0 && strlen(spec->run_id) < MESSAGE_RUN_ID_BYTES);
    require(w->node_name == NULL || strlen(w->node_name) < MESSAGE_NAME_BYTES);
    require(w->local_addr == NULL || strpbrk(w->local_addr, " \t\n") == NULL);
    require(!w->keeps_rank_0 || (w->node_rank == 0 && w->host == JOB_HOST_HERE));
    require(w->store_allow == NULL || w->store_allow->n <= ALLOW_MAX);
}

/* A job holds what its header promises, and its workers' environment what torch asks for. */
static void check_job(const struct job_spec *spec, char **env)
{
    require(spec->n_local >= 1 && spec->n_local <= JOB_RANKS_MAX);
    require(spec->run_id[0] != '\0' && strlen(spec->run_id) <= CLI_NAME_MAX);
    require(strlen(spec->role) <= CLI_NAME_MAX);
    require(spec->path[0] != '\0');
    require(spec->argv[0] != NULL && spec->shown != NULL);
    require(spec->store <= STORE_WORKER && spec->verbose >= 0 && spec->verbose <= 2);
    check_world(spec);
    const struct output_spec *o = &spec->output;
    for (int i = 0; i < JOB_RANKS_MAX; i++) {
        require(o->redirects[i] <= 3 && o->tees[i] <= 3);
        require(i < spec->n_local || o->redirects[i] + o->tees[i] + o->hidden[i] == 0);
    }
    require(o->label == NULL || output_spec_check_label("", o->label, NULL) == 0);
    require(o->stdin_rank < spec->n_local && o->stdin_rank >= -1);
    require(spec->omp_threads >= 0 && (spec->omp_threads > 0 || !spec->omp_asked));

    struct generation_place place = {.world_size = spec->n_local,
                                     .local_world_size = spec->n_local,
                                     .n_nodes = 1,
                                     .master_addr =
                                         spec->world.has_others ? "node1" : spec->master_addr,
                                     .node_fd = -1,
                                     .checkpoint_fd = -1,
                                     .progress_fd = -1,
                                     .pmi_fd = -1};
    const struct rank_place rank = {.error_file = ""};
    struct worker_env *common = NULL;
    char **worker = NULL;
    require(worker_env_create(spec, &place, env, &common, NULL) == 0);
    require(worker_env_make(common, &rank, &worker, NULL) == 0);
    int n_ranks = 0;
    for (char **v = worker; *v != NULL; v++)
        n_ranks += strcmp(*v, "RANK=0") == 0;
    require(n_ranks == 1);
    free(worker);
    worker_env_destroy(common);

    char **argv = NULL;
    int n_given = 0, n_made = 0;
    struct rank_values values;
    rank_values_fill(&values, spec, &place, &rank);
    require(rank_argv_make(spec, &values, &argv, NULL) == 0);
    while (spec->argv[n_given] != NULL)
        n_given++;
    while (argv != NULL && argv[n_made] != NULL)
        n_made++;
    int n_wrap = wrap_covers(spec->wrap, rank.rank) ? spec->wrap->n_words : 0;
    require(argv == NULL || n_made == n_given + n_wrap + (spec->local_rank_arg != NULL));
    require(spec->n_program_words >= 1 && spec->n_program_words <= n_given);
    free(argv);
}

/* One that starts others. */
static void check_hosts(const struct job_spec *spec)
{
    const struct remote_spec *r = spec->remote;
    require(spec->path == NULL && spec->world.has_others && spec->run_id[0] != '\0');
    require(r->hosts.n >= 1 && r->hosts.n <= HOST_LIST_MAX && r->way.reach_ms > 0);
    require(spec->world.max_nodes <= r->hosts.n && spec->world.min_nodes >= 1);
    require(r->way.command == NULL || r->way.command[0] != NULL);
    for (size_t i = 0; i < r->hosts.n; i++)
        require(r->shares[i] == UINT32_MAX || (r->shares[i] >= 1 && r->shares[i] <= JOB_RANKS_MAX));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char *words[WORDS_MAX];
    static char *env[WORDS_MAX];
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';

    char *argv = text;
    env[0] = NULL;
    if (text[0] == 'E') {
        argv = strchr(text, '\n');
        if (argv != NULL)
            *argv++ = '\0';
        cut(text + 1, '\t', env);
    }
    int argc = cut(argv, '\n', words);

    struct fake_host_env fake = fake_host_env_usual;
    if (text[0] == 'E') {
        fake.env = (const char *const *)env;
        fake.n_gpus = (int)(size % 3);
        fake.host_file = env[0];
    }
    struct host_env world = fake_host_env_make(&fake);
    struct job_spec spec = {0};
    struct co_error err = {0};
    enum cli_wish wish;
    int rc = cli_parse(argc, words, &world, &wish, &spec, &err);
    require(rc <= 0);
    if (rc < 0) {
        require(err.code == rc && err.text[0] != '\0' && spec.path == NULL);
    } else if (wish == CLI_RUN) {
        if (spec.remote != NULL)
            check_hosts(&spec);
        else
            check_job(&spec, env);
        job_spec_fini(&spec);
    } else {
        require(spec.path == NULL);
    }
    free(text);
    return 0;
}
