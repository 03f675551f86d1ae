/* paper_ddprun.c - ddprun as one node of several, for tests: all is real but the way to the roster
 * and the other nodes (paper_roster.h).
 *
 *     paper_ddprun MIN:MAX ARGUMENTS OF DDPRUN...
 *
 * Its node is called "own". NODE_RESTARTS, NODE_TIMEOUT_MS (of each wait for nodes) come by the
 * environment. */
#include "tests/support/paper_roster.h"

#include "common/error.h"
#include "launcher/job/job_spec.h"
#include "launcher/node/node.h"
#include "launcher/options/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void join_world(struct job_spec *spec, const char *nodes)
{
    spec->world = (struct job_world){.has_others = true,
                                     .window_ms = number("NODE_WINDOW_MS", 0),
                                     .start_timeout_ms = number("NODE_TIMEOUT_MS", 60000),
                                     .rejoin_timeout_ms = number("NODE_TIMEOUT_MS", 60000),
                                     .failover_timeout_ms = 60000,
                                     .node_rank = MESSAGE_NO_RANK,
                                     .node_name = strdup("own"),
                                     .endpoint_host = strdup("paper"),
                                     .endpoint_port = 29400};
    spec->world.ends_job = number("NODE_ENDS_JOB", 0) != 0;
    if (sscanf(nodes, "%u:%u", &spec->world.min_nodes, &spec->world.max_nodes) != 2)
        abort();
}

int main(int argc, char **argv)
{
    struct job_spec spec = {0};
    struct co_error err;
    struct node_end end = {0};
    enum cli_wish wish;
    const char *nodes = argv[1];
    argv[1] = argv[0];
    int rc = cli_parse(argc - 1, argv + 1, &host_env_real, &wish, &spec, &err);
    if (rc == 0) {
        join_world(&spec, nodes);
        rc = node_run(&spec, &paper_roster_link, open("/dev/null", O_RDWR | O_CLOEXEC), &end, &err);
    }
    if (rc < 0) {
        fprintf(stderr, "paper_ddprun: %s\n", err.text);
        return 96;
    }
    job_spec_fini(&spec);
    if (end.die_of != 0) {
        sigset_t set;
        signal(end.die_of, SIG_DFL);
        sigemptyset(&set);
        sigaddset(&set, end.die_of);
        raise(end.die_of);
        sigprocmask(SIG_UNBLOCK, &set, NULL);
    }
    return end.exit_code;
}
