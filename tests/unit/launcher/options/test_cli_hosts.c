/* Command lines with hosts, and those of nodes that received a node assignment. */
#include "one_command_line.h"

#include "launcher/hosts/host_list.h"
#include "launcher/job/job_spec.h"
#include "launcher/remote/remote_priv.h"
#include "tests/support/suite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REFUSED(message, ...)                                                                      \
    do {                                                                                           \
        ck_assert_int_eq(PARSE("ddprun", __VA_ARGS__), -EINVAL);                                   \
        ck_assert_str_eq(err.text, message);                                                       \
    } while (0)

START_TEST(hosts_are_the_nodes)
{
    JOB("ddprun", "-H", "a:4,b:2", "nowhere-here.py");
    ck_assert(spec.world.has_others);
    ck_assert_uint_eq(spec.world.min_nodes, 2);
    ck_assert_uint_eq(spec.world.max_nodes, 2);
    ck_assert_uint_eq(spec.remote->hosts.n, 2);
    ck_assert_uint_eq(spec.remote->shares[0], 4);
    ck_assert_uint_eq(spec.remote->shares[1], 2);
    ck_assert_uint_eq(spec.remote->way.reach_ms, 30000);
    ck_assert_int_eq(spec.remote->send, REMOTE_SEND_AUTO);
    ck_assert_ptr_null(spec.remote->way.command);
    ck_assert_int_eq(spec.n_local, 4);
    ck_assert_str_eq(spec.backend, "c10d");
    ck_assert_uint_eq(strlen(spec.run_id), 36);
    JOB("ddprun", "-H", "a,b,c", "--nnodes", "1:3", "-p", "gpu", "x");
    ck_assert_uint_eq(spec.world.min_nodes, 1);
    ck_assert_uint_eq(spec.world.max_nodes, 3);
    ck_assert_uint_eq(spec.remote->shares[2], UINT32_MAX);
    JOB("ddprun", "-H", "a:4,b:4,c:4", "-n", "5", "x");
    ck_assert_uint_eq(spec.remote->hosts.n, 2); /* the third would have no ranks */
    JOB("ddprun", "-H", "a", "-t", "3:1", "x"); /* a local rank that may be there */
}
END_TEST

START_TEST(a_file_may_name_the_hosts)
{
    fake.host_file = "a slots=2\nb slots=3\n";
    JOB("ddprun", "--hostfile", "hosts", "--ssh-command", " rsh  -q ", "--connect-timeout", "5",
        "--bcast", "never", "x");
    ck_assert_uint_eq(spec.remote->hosts.n, 2);
    ck_assert_str_eq(spec.remote->way.command[0], "rsh");
    ck_assert_str_eq(spec.remote->way.command[1], "-q");
    ck_assert_ptr_null(spec.remote->way.command[2]);
    ck_assert_uint_eq(spec.remote->way.reach_ms, 5000);
    ck_assert_int_eq(spec.remote->send, REMOTE_SEND_NEVER);
    REFUSED("--hostfile: cannot read 'other': No such file or directory", "--hostfile", "other",
            "x");
    fake.host_file = "a\nb slots=x\n";
    REFUSED("hosts:2: invalid value 'x' for slots: expected a number", "--hostfile", "hosts", "x");
}
END_TEST

START_TEST(a_variable_may_be_as_long_as_the_kernel_allows)
{
    static char text[JOB_VARIABLE_MAX + 2];
    memset(text, 'A', JOB_VARIABLE_MAX);
    text[1] = '=';
    JOB("ddprun", "-x", text, "train.py");
    ck_assert_str_eq(spec.exports[0], text);
    text[JOB_VARIABLE_MAX] = 'A';
    REFUSED("the value of option '-x' is too long: expected at most 131071 bytes", "-x", text,
            "train.py");
}
END_TEST

START_TEST(local_addr_gives_hosts_the_address_of_ddprun)
{
    JOB("ddprun", "-H", "a,b", "--local-addr", "10.0.0.7", "train.py");
    ck_assert_str_eq(spec.world.local_addr, "10.0.0.7");
}
END_TEST

START_TEST(options_that_conflict_with_hosts_are_refused)
{
    REFUSED("-H and --hostfile cannot be used together", "-H", "a", "--hostfile", "hosts", "x");
    REFUSED("-H and --node-rank cannot be used together: this ddprun sets the rendezvous of the "
            "hosts it starts",
            "-H", "a,b", "--node-rank", "1", "x");
    REFUSED("--rdzv-backend static cannot be used with hosts that this ddprun starts; leave it "
            "out, or use c10d",
            "-H", "a,b", "--rdzv-backend", "static", "x");
    REFUSED("--nnodes 3 requires more than the 2 hosts given; add hosts or lower --nnodes", "-H",
            "a,b", "--nnodes", "3", "x");
    REFUSED("-n: 9 ranks requested, but the hosts have 8 slots; add hosts or slots", "-H",
            "a:4,b:4", "-n", "9", "x");
    REFUSED("-H: 'a;b' is not a valid host", "-H", "a;b", "x");
    REFUSED("--ssh-command requires a command", "-H", "a", "--ssh-command", " ", "x");
    REFUSED("invalid value '0' for --connect-timeout: expected a duration greater than 0", "-H",
            "a", "--connect-timeout", "0", "x");
    REFUSED("invalid value 'perhaps' for --bcast: expected one of auto, never, always", "-H", "a",
            "--bcast", "perhaps", "x");
    REFUSED("no program given; usage: ddprun [OPTION]... PROGRAM [ARGUMENT]..., or try --help",
            "-H", "a");
}
END_TEST

START_TEST(variables_and_a_directory_also_apply_to_one_node)
{
    JOB("ddprun", "-x", "A=1", "-x", "B", "-C", "/there", "train.py");
    ck_assert_str_eq(spec.exports[0], "A=1");
    ck_assert_str_eq(spec.exports[1], "B");
    ck_assert_ptr_null(spec.exports[2]);
    REFUSED("invalid value '1A=x' for -x: expected NAME or NAME=VALUE", "-x", "1A=x", "train.py");
    REFUSED("invalid value '=x' for -x: expected NAME or NAME=VALUE", "-x", "=x", "train.py");
    REFUSED("-C '/gone': No such file or directory", "-C", "/gone", "train.py");
    REFUSED("-C requires the name of a directory", "-C", "", "train.py");
}
END_TEST

START_TEST(a_node_assignment_overrides_options)
{
    const struct node_assignment assignment = {.by = "the launching ddprun",
                                               .is_whole = true,
                                               .name = "b",
                                               .nodes = "2:3",
                                               .n_ranks = "4",
                                               .endpoint = "[fd00::1]:4000",
                                               .run_id = "job7"};
    world.assignment = &assignment;
    JOB("ddprun", "-H", "a,b,c", "--nnodes", "1:3", "-n", "12", "-x", "A=1", "-C", "/gone",
        "--rdzv-conf", "is_host=1", "--ssh-command", "x", "train.py");
    ck_assert_ptr_null(spec.remote);
    ck_assert_uint_eq(spec.world.min_nodes, 2);
    ck_assert_int_eq(spec.n_local, 4);
    ck_assert_str_eq(spec.world.endpoint_host, "fd00::1");
    ck_assert_uint_eq(spec.world.endpoint_port, 4000);
    ck_assert_str_eq(spec.world.node_name, "b");
    ck_assert_str_eq(spec.run_id, "job7");
    ck_assert_int_eq(spec.world.host, JOB_HOST_ELSEWHERE);
    ck_assert_ptr_null(spec.exports[0]);
}
END_TEST

START_TEST(a_node_assignment_may_be_for_a_single_node)
{
    const struct node_assignment assignment = {.by = "the launching ddprun",
                                               .is_whole = true,
                                               .name = "b",
                                               .nodes = "1:1",
                                               .endpoint = "h:1",
                                               .run_id = "j"};
    world.assignment = &assignment;
    JOB("ddprun", "-H", "b", "train.py");
    ck_assert(spec.world.has_others);
    ck_assert_uint_eq(spec.world.max_nodes, 1);
}
END_TEST

static const char *join(char **list)
{
    static char text[400];
    text[0] = '\0';
    for (char **v = list; *v != NULL; v++)
        strcat(strcat(text, v == list ? "" : " "), *v);
    free(list);
    return text;
}

START_TEST(the_environment_is_sent_except_machine_variables)
{
    char *const environment[] = {"PATH=/bin",
                                 "HOME=/root",
                                 "SSH_AUTH_SOCK=/x",
                                 "A=1",
                                 "HOMEWORK=2",
                                 "DDP_TOKEN=secret",
                                 "XDG_RUNTIME_DIR=/run",
                                 "SLURM_JOB_ID=3",
                                 "K_MPI_JOB_ROLE=launcher",
                                 "NVIDIA_VISIBLE_DEVICES=",
                                 "NVIDIA_DRIVER_CAPABILITIES=",
                                 "NCCL_DEBUG=INFO",
                                 "broken",
                                 NULL};
    const char *const none[] = {NULL};
    const char *const exports[] = {"A=5", "HOME", "ABSENT", NULL};
    char **list;
    ck_assert_int_eq(remote_env_make(environment, none, &list), 0);
    ck_assert_str_eq(join(list), "PATH=/bin A=1 HOMEWORK=2 NCCL_DEBUG=INFO");
    ck_assert_int_eq(remote_env_make(environment, exports, &list), 0);
    ck_assert_str_eq(join(list), "PATH=/bin HOME=/root A=1 HOMEWORK=2 NCCL_DEBUG=INFO A=5");
}
END_TEST

TEST_SUITE(cli_hosts)
{
    Suite *suite = suite_create("cli_hosts");
    TCase *c = tcase_create("cli_hosts");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, hosts_are_the_nodes);
    tcase_add_test(c, a_file_may_name_the_hosts);
    tcase_add_test(c, a_variable_may_be_as_long_as_the_kernel_allows);
    tcase_add_test(c, local_addr_gives_hosts_the_address_of_ddprun);
    tcase_add_test(c, options_that_conflict_with_hosts_are_refused);
    tcase_add_test(c, variables_and_a_directory_also_apply_to_one_node);
    tcase_add_test(c, a_node_assignment_overrides_options);
    tcase_add_test(c, a_node_assignment_may_be_for_a_single_node);
    tcase_add_test(c, the_environment_is_sent_except_machine_variables);
    suite_add_tcase(suite, c);
    return suite;
}
