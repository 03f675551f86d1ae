/* reinforce.c - learn to balance a pole by trying (REINFORCE, Williams 1992), on as many ranks as
 * it is started on.
 *
 *     reinforce [SEED]                  alone
 *     ddprun -n 2 reinforce [SEED]      on two workers
 *
 * Each rank has the same policy and plays its own episodes, with a seed of its own: if all had the
 * same one they would all see the same, and two ranks would know no more than one. What each has
 * learned is averaged, and all make the same step. It ends when the last 100 episodes of all ranks
 * took 195 of 200 steps on average. */
#include <ddp/ddp.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../shared/adamw.h"
#include "cartpole.h"
#include "policy.h"

#define DISCOUNT      0.99 /* of a reward one step later */
#define LEARNING_RATE 0.005
#define GOAL          195.0

enum { EPISODES = 4 /* per rank and step of the optimizer */, RECENT = 100, MOST_ROUNDS = 3000 };

struct moment { /* what was seen, what was done, and how well it went from there on */
    double state[CARTPOLE_STATE];
    int action;
    double gain;
};

struct job {
    uint64_t seed;
    struct policy policy;
    struct adamw adam;
    struct random rng; /* this rank's own */
    int64_t round;
    double recent[RECENT]; /* steps of the last episodes; shares of them, of several ranks */
    struct moment moments[EPISODES * CARTPOLE_MOST_STEPS];
    size_t n_moments;
};

/* Play an episode, and keep its moments. returns its steps */
static int play(struct job *job)
{
    struct cartpole pole;
    const size_t first = job->n_moments;
    bool goes_on = true;
    double gain = 0;

    cartpole_begin(&pole, &job->rng);
    while (goes_on) {
        struct moment *now = &job->moments[job->n_moments++];
        struct policy_view view;
        memcpy(now->state, pole.state, sizeof(now->state));
        policy_look(&job->policy, now->state, &view);
        now->action = policy_choose(&view, &job->rng);
        goes_on = cartpole_push(&pole, now->action);
    }
    for (size_t i = job->n_moments; i-- > first;) /* each step is a reward of 1 */
        job->moments[i].gain = gain = 1 + DISCOUNT * gain;
    return pole.n_steps;
}

/* What was better than usual is to become likelier, what was worse rarer. */
static void learn(struct job *job)
{
    const double n = (double)job->n_moments;
    double mean = 0, var = 0;

    for (size_t i = 0; i < job->n_moments; i++)
        mean += job->moments[i].gain / n;
    for (size_t i = 0; i < job->n_moments; i++)
        var += (job->moments[i].gain - mean) * (job->moments[i].gain - mean) / n;
    memset(job->policy.grads, 0, sizeof(job->policy.grads));
    for (size_t i = 0; i < job->n_moments; i++) {
        const struct moment *m = &job->moments[i];
        policy_learn(&job->policy, m->state, m->action, (m->gain - mean) / sqrt(var + 1e-8) / n);
    }
}

/* The mean of the last 100 episodes of all ranks. */
static double note(struct job *job, double steps, int n_ranks)
{
    const int64_t most = RECENT / EPISODES / n_ranks; /* rounds that have so many */
    const int64_t places = most > 0 ? most : 1;
    double mean = 0;

    job->recent[job->round++ % places] = steps;
    for (int64_t i = 0; i < places; i++)
        mean += job->recent[i] / (double)places;
    return mean;
}

/* Episodes on this rank, a step on all. All get the same mean, and so all stop together. */
static int play_round(struct ddp_group *g, struct job *job, struct ddp_model *m, double *ret_mean)
{
    const struct adamw_step how = {.step = job->round + 1, .lr = LEARNING_RATE};
    const struct random before = job->rng;
    double steps = 0;
    int rc;

    job->n_moments = 0;
    for (int e = 0; e < EPISODES; e++)
        steps += (double)play(job) / EPISODES;
    learn(job);
    if ((rc = ddp_mean(g, &steps, 1)) != 0 || (rc = ddp_model_sync(m)) != 0) {
        job->rng = before; /* a round that does not count was not played */
        return rc;
    }
    adamw_step(&job->adam, &how, job->policy.params, job->policy.grads, 0, POLICY_PARAMS, 0);
    *ret_mean = note(job, steps, ddp_world_size(g));
    return 0;
}

/* What the replacement of a dead rank has to get in addition to the policy. It continues with dice
 * of its own. */
static int register_state(struct ddp_group *g, struct job *job)
{
    int rc = ddp_state_add(g, "round", &job->round, sizeof(job->round));

    if (rc == 0)
        rc = ddp_state_add(g, "recent", job->recent, sizeof(job->recent));
    if (rc == 0)
        rc = ddp_state_add(g, "mean", job->adam.mean, job->adam.n * sizeof(real));
    if (rc == 0)
        rc = ddp_state_add(g, "square", job->adam.square, job->adam.n * sizeof(real));
    return rc;
}

static int train(struct ddp_group *g, void *arg)
{
    struct job *job = arg;
    struct ddp_model *m;
    double mean = 0;
    int rc;

    if ((rc = register_state(g, job)) != 0 ||
        (rc = ddp_model_create(g, job->policy.tensors, POLICY_TENSORS, NULL, &m)) != 0)
        return rc;
    if (job->rng.state == 0) {
        job->rng.state = ddp_seed(g, job->seed);
        printf("rank %d of %d plays with seed %016" PRIx64 "\n", ddp_rank(g), ddp_world_size(g),
               job->rng.state);
        fflush(stdout);
    }
    while (mean < GOAL && job->round < MOST_ROUNDS) {
        if ((rc = play_round(g, job, m, &mean)) != 0)
            return rc;
        if (job->round % 25 == 0)
            ddp_log0(g, "round %" PRId64 ": %.1f steps in the last %d episodes\n", job->round, mean,
                     RECENT);
    }
    ddp_log0(g, "%s after %" PRId64 " episodes: %.1f steps\n",
             mean >= GOAL ? "solved" : "not solved", job->round * EPISODES * ddp_world_size(g),
             mean);
    return 0;
}

int main(int argc, char **argv)
{
    static struct job job;
    char *end = NULL;

    job.seed = argc > 1 ? strtoull(argv[1], &end, 10) : 1;
    if (argc > 2 || (end != NULL && (end == argv[1] || *end != '\0'))) {
        fprintf(stderr, "usage: reinforce [SEED]\n");
        return 2;
    }
    policy_init(&job.policy, job.seed);
    if (adamw_init(&job.adam, POLICY_PARAMS) < 0) {
        fprintf(stderr, "reinforce: out of memory\n");
        return 1;
    }
    if (ddp_run(train, &job) != 0)
        ddp_fatal("reinforce");
    adamw_fini(&job.adam);
    return 0;
}
