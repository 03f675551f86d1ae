/* Command lines of several nodes to jobs. Wrong ones are with those of test_cli.c. */
#include "one_command_line.h"

#include "launcher/job/job_spec.h"
#include "launcher/options/cli_draft.h"
#include "rendezvous/net/address.h"
#include "tests/support/suite.h"

#include <errno.h>
#include <string.h>

static const struct job_world *const w = &spec.world;

#define C10D "--rdzv-endpoint=node1:29401", "--rdzv-id=job7"

START_TEST(segments_are_whole_groups_of_nodes)
{
    JOB("ddprun", "--nnodes=4:8", "--segment=4", "--rdzv-id=x", "--rdzv-endpoint=n1",
        "--rdzv-backend=c10d", "true");
    ck_assert_uint_eq(spec.world.segment, 4);
    ck_assert_str_eq(spec.world.domain_rule, "gpu");
    ck_assert_ptr_null(spec.world.domain);
    JOB("ddprun", "-H", "n1,n2,n3", "--spares=1", "--segment=2", "--domain=name:^n", "true");
    ck_assert_uint_eq(spec.world.segment, 2);
    ck_assert_str_eq(spec.world.domain_rule, "name:^n");
    JOB("ddprun", "--segment=1", "--domain=rack7", "true"); /* one node: nothing to choose */
    ck_assert_uint_eq(spec.world.segment, 0);
    ck_assert_int_eq(PARSE("ddprun", "--nnodes=4:7", "--segment=4", "--rdzv-endpoint=n1", "true"),
                     -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "this one has 4 to 7 nodes; use --nnodes with multiples "
                                           "of 4"));
    ck_assert_int_eq(PARSE("ddprun", "-H", "n1,n2,n3", "--segment=2", "true"), -EINVAL);
    ck_assert_int_eq(PARSE("ddprun", "--nnodes=2", "--domain=rack7", "true"), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "--domain requires --segment"));
    ck_assert_int_eq(PARSE("ddprun", "--nnodes=2", "--segment=2", "--domain=a:b", "true"), -EINVAL);
    ck_assert_int_eq(PARSE("ddprun", "--nnodes=2", "--segment=0", "true"), -EINVAL);
    ck_assert_int_eq(PARSE("ddprun", "--nnodes=2", "--segment=x", "true"), -EINVAL);
    ck_assert_int_eq(PARSE("ddprun", "--nnodes=2", "--segment=65537", "true"), -EINVAL);
}
END_TEST

START_TEST(spares_are_nodes_beyond_those_that_are_active)
{
    JOB("ddprun", "--nnodes=2", "--spares=3", "--rdzv-id=x", "--rdzv-endpoint=n1",
        "--rdzv-backend=c10d", "true");
    ck_assert_uint_eq(spec.world.spares, 3);
    ck_assert_uint_eq(spec.world.max_nodes, 2);
    JOB("ddprun", "--nnodes=1", "--spares=1", "--rdzv-id=x", "--rdzv-endpoint=n1",
        "--rdzv-backend=c10d", "true");
    ck_assert(spec.world.has_others);
    JOB("ddprun", "-H", "n1,n2,n3", "--spares=1", "true");
    ck_assert_uint_eq(spec.world.min_nodes, 2);
    ck_assert_uint_eq(spec.world.max_nodes, 2);
    ck_assert_int_eq(PARSE("ddprun", "-H", "n1,n2", "--spares=2", "true"), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "--spares 2"));
    ck_assert_int_eq(PARSE("ddprun", "--spares=x", "true"), -EINVAL);
    ck_assert_int_eq(PARSE("ddprun", "--spares=65536", "true"), -EINVAL);
}
END_TEST

START_TEST(one_node_needs_no_peers)
{
    JOB("ddprun", "train.py");
    ck_assert(!w->has_others);
    JOB("ddprun", "--nnodes=1", C10D, "--rdzv-backend=c10d", "--rdzv-conf=nonsense=1", "train.py");
    ck_assert(!w->has_others);
    ck_assert_ptr_null(spec.notes);
    ck_assert_str_eq(spec.master_addr, "127.0.0.1");
    JOB("ddprun", "--standalone", "--nnodes=1:1", "--node-rank=0", "train.py");
    ck_assert(!w->has_others);
}
END_TEST

START_TEST(nodes_rendezvous_at_the_endpoint)
{
    JOB("ddprun", "--nnodes", "2:4", "--nproc-per-node", "8", C10D, "--max-restarts", "3",
        "train.py");
    ck_assert(w->has_others);
    ck_assert_uint_eq(w->min_nodes, 2);
    ck_assert_uint_eq(w->max_nodes, 4);
    ck_assert_str_eq(spec.backend, "c10d");
    ck_assert_str_eq(w->endpoint_host, "node1");
    ck_assert_uint_eq(w->endpoint_port, 29401);
    ck_assert_int_eq(w->host, JOB_HOST_FOUND_OUT);
    ck_assert_int_eq(w->node_rank, MESSAGE_NO_RANK);
    ck_assert(!w->keeps_rank_0 && !w->ends_job);
    ck_assert_str_eq(spec.run_id, "job7");
    ck_assert_uint_eq(spec.master_port, 0); /* of the store, which is elsewhere */
    ck_assert_int_eq(spec.n_local, 8);
    JOB("ddprun", "-N2", "--rdzv-endpoint=[fd00::7]", "--rdzv-id=a", "--node-rank=1",
        "--rdzv-backend=c10d", "--master-port=29502", "train.py");
    ck_assert_str_eq(w->endpoint_host, "fd00::7");
    ck_assert_uint_eq(w->endpoint_port, 29400);
    ck_assert_int_eq(w->node_rank, 1);
    ck_assert_uint_eq(spec.master_port, 29502);
    JOB("torchrun", "-N2", "--rdzv-backend=c10d", "train.py");
    ck_assert_str_eq(w->endpoint_host, "localhost");
    ck_assert_str_eq(w->unsaid, "--rdzv-endpoint");
    ck_assert_uint_eq(w->endpoint_port, 29400);
    ck_assert_str_eq(spec.run_id, "none");
}
END_TEST

START_TEST(with_static_the_node_with_rank_0_is_the_endpoint)
{
    JOB("torchrun", "--nnodes=2", "--node_rank=0", "--master_addr=node1", "--master_port=29500",
        "--nproc_per_node=2", "train.py");
    ck_assert_str_eq(spec.backend, "static");
    ck_assert_str_eq(w->endpoint_host, "node1");
    ck_assert_uint_eq(w->endpoint_port, 29500);
    ck_assert_int_eq(w->host, JOB_HOST_HERE);
    ck_assert(w->keeps_rank_0);
    ck_assert_str_eq(spec.master_addr, "node1");
    ck_assert_uint_eq(spec.master_port, 29500); /* one number for both */
    ck_assert_str_eq(spec.run_id, "none");
    JOB("ddprun", "-N2", "--node-rank=1", "--master-addr=node1", "train.py");
    ck_assert_str_eq(spec.backend, "static");
    ck_assert_ptr_null(w->unsaid);
    ck_assert_int_eq(w->host, JOB_HOST_ELSEWHERE);
    ck_assert(!w->keeps_rank_0);
    ck_assert_uint_eq(w->endpoint_port, 29500);
    ck_assert_str_eq(spec.run_id, "none");
    JOB("torchrun", "-N2", "train.py");
    ck_assert_str_eq(w->endpoint_host, "127.0.0.1");
    ck_assert_str_eq(w->unsaid, "--master-addr");
    ck_assert_int_eq(w->node_rank, 0);
    JOB("torchrun", "-N2", "--node-rank=1", "--rdzv-endpoint=node3:4000", "--master-addr=node1",
        "--master-port=1", "train.py");
    ck_assert_str_eq(w->endpoint_host, "node3");
    ck_assert_uint_eq(w->endpoint_port, 4000);
    ck_assert_uint_eq(spec.master_port, 4000);
    JOB("torchrun", "-N2", "--rdzv-endpoint=node3", "--master-port=4001", "train.py");
    ck_assert_uint_eq(w->endpoint_port, 4001);
}
END_TEST

START_TEST(the_backend_follows_from_other_options)
{
    JOB("ddprun", "-N2", C10D, "train.py");
    ck_assert_str_eq(spec.backend, "c10d");
    JOB("ddprun", "-N2", C10D, "--node-rank=1", "train.py");
    ck_assert_str_eq(spec.backend, "static");
    JOB("torchrun", "-N2", C10D, "train.py");
    ck_assert_str_eq(spec.backend, "static");
    JOB("ddprun", "-N2", C10D, "--rdzv-backend=static", "train.py");
    ck_assert_str_eq(spec.backend, "static");
}
END_TEST

START_TEST(an_address_without_effect_causes_a_note)
{
    JOB("ddprun", "-N2", C10D, "--rdzv-backend=c10d", "--master-addr=node2", "train.py");
    ck_assert_str_eq(spec.notes, "--master-addr ignored: it applies to --rdzv-backend static; the "
                                 "node with rank 0 sets MASTER_ADDR\n");
    ck_assert_str_eq(w->endpoint_host, "node1");
}
END_TEST

START_TEST(all_ranks_are_shared_out)
{
    JOB("ddprun", "-N2", C10D, "-n", "8", "train.py");
    ck_assert_int_eq(spec.n_local, 4);
    JOB("ddprun", "-N4", C10D, "-n", "4096", "train.py");
    ck_assert_int_eq(spec.n_local, 1024);
    JOB("ddprun", "-N2", C10D, "-n", "8", "-p", "4", "train.py");
    ck_assert_int_eq(spec.n_local, 4);
    JOB("ddprun", "-N2:3", C10D, "-p", "3", "train.py");
    ck_assert_int_eq(spec.n_local, 3);
}
END_TEST

START_TEST(times_have_defaults)
{
    JOB("ddprun", "-N2", C10D, "train.py");
    ck_assert_uint_eq(w->start_timeout_ms, 600000);
    ck_assert_uint_eq(w->rejoin_timeout_ms, 600000);
    ck_assert_uint_eq(w->window_ms, 3000);
    ck_assert_uint_eq(w->failover_timeout_ms, 60000);
    ck_assert_int_eq(w->admit_at, MESSAGE_ADMIT_NOW);
    ck_assert_uint_eq(w->admit_timeout_ms, 0);
    ck_assert_uint_eq(w->keep_alive_ms, 0);
    ck_assert_uint_eq(w->lease_ms, 0);
    JOB("torchrun", "-N2", "--rdzv-backend=c10d", C10D, "train.py");
    ck_assert_uint_eq(w->window_ms, 30000);
}
END_TEST

START_TEST(times_can_be_given)
{
    JOB("ddprun", "-N2", C10D, "--start-timeout=90", "--join-window=0",
        "--rdzv-failover-timeout=2m", "--admit-at=checkpoint", "--admit-timeout=1h", "train.py");
    ck_assert_uint_eq(w->start_timeout_ms, 90000);
    ck_assert_uint_eq(w->rejoin_timeout_ms, 90000);
    ck_assert_uint_eq(w->window_ms, 0);
    ck_assert_uint_eq(w->failover_timeout_ms, 120000);
    ck_assert_int_eq(w->admit_at, MESSAGE_ADMIT_AT_CHECKPOINT);
    ck_assert_uint_eq(w->admit_timeout_ms, 3600000);
    JOB("ddprun", "-N2", C10D, "--start-timeout=90", "--rejoin-timeout=5s", "train.py");
    ck_assert_uint_eq(w->rejoin_timeout_ms, 5000);
}
END_TEST

START_TEST(etcd_has_both_of_torchruns_backend_names)
{
    static const char *const names[] = {"--rdzv-backend=etcd", "--rdzv-backend=etcd-v2"};
    for (int i = 0; i < 2; i++) {
        JOB("ddprun", "-N2", names[i], "--rdzv-endpoint=etcd1", "--rdzv-id=job7", "train.py");
        ck_assert_str_eq(w->endpoint_host, "etcd1");
        ck_assert_uint_eq(w->endpoint_port, 2379);
        ck_assert_ptr_nonnull(w->etcd);
        ck_assert_str_eq(w->etcd->prefix, "/ddprun");
        ck_assert(!w->etcd->is_https);
        ck_assert_ptr_null(spec.master_addr);
    }
    JOB("ddprun", "-N2", C10D, "train.py");
    ck_assert_ptr_null(w->etcd);
}
END_TEST

START_TEST(etcd_credentials_have_both_of_torchruns_names)
{
    JOB("ddprun", "-N2", "--rdzv-backend=etcd", "--rdzv-endpoint=[::1]:4001", "--rdzv-id=job7",
        "--rdzv-conf=protocol=https,cacert=ca,cert=c,key=k,etcd_prefix=/a/b//,user=u,password=p",
        "train.py");
    ck_assert_ptr_null(spec.notes);
    ck_assert_str_eq(w->endpoint_host, "::1");
    ck_assert_uint_eq(w->endpoint_port, 4001);
    ck_assert(w->etcd->is_https);
    ck_assert_str_eq(w->etcd->ca_cert, "ca");
    ck_assert_str_eq(w->etcd->cert, "c");
    ck_assert_str_eq(w->etcd->key, "k");
    ck_assert_str_eq(w->etcd->prefix, "/a/b");
    ck_assert_str_eq(w->etcd->user, "u");
    ck_assert_str_eq(w->etcd->password, "p");
    JOB("ddprun", "-N2", "--rdzv-backend=etcd-v2", "--rdzv-endpoint=etcd1", "--rdzv-id=job7",
        "--rdzv-conf=ca_cert=ca,ssl_cert=c,ssl_cert_key=k,password_file=f", "train.py");
    ck_assert_str_eq(spec.notes, "--rdzv-conf: the password for etcd is sent to etcd1 without "
                                 "encryption; use protocol=https\n");
    ck_assert_str_eq(w->etcd->ca_cert, "ca");
    ck_assert_str_eq(w->etcd->cert, "c");
    ck_assert_str_eq(w->etcd->key, "k");
    ck_assert_str_eq(w->etcd->password_file, "f");
}
END_TEST

START_TEST(torchruns_settings_are_understood)
{
    JOB("torchrun", "-N2", "--rdzv-backend=c10d", C10D,
        "--rdzv-conf= join_timeout = 60 ,last_call_timeout=1.5s,is_host=True,store_type=tcp,"
        "cas_backoff_max_seconds=0.5,"
        "read_timeout=5,keep_alive_interval=2,keep_alive_max_attempt=4",
        "train.py");
    ck_assert_ptr_null(spec.notes);
    ck_assert_uint_eq(w->start_timeout_ms, 60000);
    ck_assert_uint_eq(w->rejoin_timeout_ms, 60000);
    ck_assert_uint_eq(w->window_ms, 1500);
    ck_assert_uint_eq(w->keep_alive_ms, 2000);
    ck_assert_uint_eq(w->lease_ms, 8000);
    ck_assert_int_eq(w->host, JOB_HOST_HERE);
    JOB("ddprun", "-N2", C10D, "--rdzv-conf=is_host=0,join_timeout=60,last_call_timeout=0",
        "--start-timeout=70", "--join-window=2", "train.py");
    ck_assert_int_eq(w->host, JOB_HOST_ELSEWHERE);
    ck_assert_uint_eq(w->start_timeout_ms, 70000); /* the option wins */
    ck_assert_uint_eq(w->window_ms, 2000);
    JOB("ddprun", "-N2", C10D, "--rdzv-conf=keep_alive_max_attempt=5", "train.py");
    ck_assert_uint_eq(w->keep_alive_ms, 1000);
    ck_assert_uint_eq(w->lease_ms, 5000);
    JOB("ddprun", "-N2", C10D, "--rdzv-conf=keep_alive_interval=500ms", "train.py");
    ck_assert_uint_eq(w->keep_alive_ms, 500);
    ck_assert_uint_eq(w->lease_ms, 1500);
}
END_TEST

START_TEST(failover_is_a_setting_of_nodes_that_find_their_coordinator_themselves)
{
    struct cli_conf conf;
    JOB("ddprun", "-N2:3", C10D, "train.py"); /* by default: it can continue without a node */
    ck_assert(w->failover && w->endpoint_once && w->endpoint_guessed);
    JOB("ddprun", "-N2", C10D, "--max-restarts=1", "train.py");
    ck_assert(w->failover);
    JOB("ddprun", "-N2", C10D, "--restart-after-progress=60", "train.py");
    ck_assert(w->failover);
    JOB("ddprun", "-N2", C10D, "train.py");
    ck_assert(!w->failover);
    JOB("ddprun", "-N2", C10D, "--rdzv-conf=failover=majority", "train.py");
    ck_assert(w->failover);
    ck_assert(!w->failover_alone);
    JOB("ddprun", "-N2", C10D, "--rdzv-conf=failover=alone", "train.py");
    ck_assert(w->failover && w->failover_alone);
    JOB("ddprun", "-N1", "--rdzv-backend=c10d", "--rdzv-conf=failover=alone", "train.py");
    ck_assert(!w->failover && !w->failover_alone);
    JOB("ddprun", "-N2:3", C10D, "--rdzv-conf=failover=majority,endpoint=once", "train.py");
    ck_assert(w->failover && w->endpoint_once && !w->endpoint_guessed);
    JOB("ddprun", "-N2:3", C10D, "--rdzv-conf=failover=off,endpoint=again", "train.py");
    ck_assert(!w->failover && !w->endpoint_once);
    JOB("ddprun", "-N2:3", C10D, "--rdzv-conf=is_host=0", "train.py");
    ck_assert(w->failover);
    JOB("ddprun", "-N1", "--rdzv-backend=c10d", "--rdzv-endpoint=node1", "--max-restarts=1",
        "train.py");
    ck_assert(!w->failover);
    JOB("ddprun", "-N2:3", "--rdzv-backend=static", "--master-addr=node1", "--node-rank=0",
        "train.py");
    ck_assert(!w->failover);
    JOB("ddprun", "-N2:3", C10D, "--rdzv-conf=host_timeout=500ms", "train.py");
    ck_assert(w->failover && w->host_timeout_ms == 500);
    ck_assert_ptr_null(spec.notes);
    JOB("ddprun", "-N2:3", C10D, "--rdzv-conf=host_timeout=0", "train.py");
    ck_assert_uint_eq(w->host_timeout_ms, 0);
    JOB("ddprun", "-N2:3", C10D, "--rdzv-conf=failover=off,host_timeout=1s", "train.py");
    ck_assert_uint_eq(w->host_timeout_ms, 0);
    ck_assert_str_eq(spec.notes, "--rdzv-conf: host_timeout has no effect without --rdzv-conf "
                                 "failover=majority\n");
    ck_assert_int_eq(cli_conf_parse("--rdzv-conf", "host_timeout=299ms", &conf, &err), -ERANGE);
    ck_assert_str_eq(err.text, "invalid value '299ms' for --rdzv-conf host_timeout: expected 0 or "
                               "a duration from 300 to 1000 ms");
    ck_assert_int_eq(cli_conf_parse("--rdzv-conf", "host_timeout=1001ms", &conf, &err), -ERANGE);
    ck_assert_int_eq(cli_conf_parse("--rdzv-conf", "host_timeout=x", &conf, &err), -EINVAL);
    ck_assert_int_eq(cli_conf_parse("--rdzv-conf", "failover=all", &conf, &err), -EINVAL);
    ck_assert_str_eq(err.text, "invalid value 'all' for --rdzv-conf failover: expected majority, "
                               "alone or off");
    ck_assert_int_eq(cli_conf_parse("--rdzv-conf", "endpoint=maybe", &conf, &err), -EINVAL);
}
END_TEST

START_TEST(kubernetes_starts_the_endpoint_again)
{
    WITH_ENV("KUBERNETES_SERVICE_HOST=10.96.0.1");
    JOB("ddprun", "-N1:3", C10D, "train.py");
    ck_assert(w->failover && !w->endpoint_once);
    JOB("ddprun", "-N1:3", C10D, "--rdzv-conf=endpoint=once", "train.py");
    ck_assert(w->failover && w->endpoint_once);
}
END_TEST

START_TEST(a_list_of_endpoints_begins_with_the_one_where_the_job_begins)
{
    JOB("ddprun", "-N2:3", "--rdzv-id=job7", "--rdzv-conf=failover=majority",
        "--rdzv-endpoint=node1,node2:7,[::1]:8", "train.py");
    ck_assert_str_eq(w->endpoint_host, "node1");
    ck_assert_uint_eq(w->endpoint_port, 29400);
    ck_assert_uint_eq(w->n_also, 2);
    ck_assert_str_eq(w->also[0].host, "node2");
    ck_assert_uint_eq(w->also[0].port, 7);
    ck_assert_str_eq(w->also[1].host, "::1");
    ck_assert_uint_eq(w->also[1].port, 8);
    ck_assert_ptr_null(spec.notes);
    JOB("ddprun", "-N2:3", "--rdzv-id=job7", "--rdzv-conf=failover=off",
        "--rdzv-endpoint=node1,node2", "train.py");
    ck_assert_uint_eq(w->n_also, 0);
    ck_assert_ptr_nonnull(spec.notes);
    JOB("ddprun", "-N1", "--rdzv-backend=c10d", "--rdzv-endpoint=node1,node2", "train.py");
    ck_assert_uint_eq(w->n_also, 0);
}
END_TEST

START_TEST(a_bad_list_of_endpoints_is_rejected)
{
    static const struct {
        const char *value, *backend, *text;
    } bad[] = {
        {"--rdzv-endpoint=a,", "--rdzv-backend=c10d", "an entry of the list is empty"},
        {"--rdzv-endpoint=,a", "--rdzv-backend=c10d", "an entry of the list is empty"},
        {"--rdzv-endpoint=a,,b", "--rdzv-backend=c10d", "an entry of the list is empty"},
        {"--rdzv-endpoint=a,b,a:29400", "--rdzv-backend=c10d", "a:29400 is listed twice"},
        {"--rdzv-endpoint=a,b:x", "--rdzv-backend=c10d", "'x' is not a port"},
        {"--rdzv-endpoint=a,b:0", "--rdzv-backend=c10d", "invalid port 0"},
        {"--rdzv-endpoint=a, b", "--rdzv-backend=c10d", "expected a host name or address"},
        {"--rdzv-endpoint=a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "--rdzv-backend=c10d",
         "expected at most 16 endpoints"},
        {"--rdzv-endpoint=a,b", "--rdzv-backend=etcd", "requires --rdzv-backend c10d"},
        {"--rdzv-endpoint=a,b", "--rdzv-backend=static", "requires --rdzv-backend c10d"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(
            PARSE("ddprun", "-N2:3", "--rdzv-id=job7", bad[i].backend, bad[i].value, "train.py"),
            -EINVAL);
        ck_assert_msg(strstr(err.text, bad[i].text) != NULL, "%s: %s", bad[i].value, err.text);
    }
}
END_TEST

START_TEST(a_setting_of_another_backend_is_ignored)
{
    JOB("torchrun", "-N2", "--rdzv-conf=timeout=7,is_host=no,rank=1", "train.py");
    ck_assert_uint_eq(w->start_timeout_ms, 7000);
    ck_assert_int_eq(w->host, JOB_HOST_HERE);
    ck_assert_int_eq(w->node_rank, 0);
    JOB("torchrun", "-N2", "--rdzv-conf=timeout=7", "--rdzv-backend=c10d", "train.py");
    ck_assert_uint_eq(w->start_timeout_ms, 600000);
}
END_TEST

START_TEST(an_unknown_setting_causes_a_note)
{
    JOB("torchrun", "-N2", "--rdzv-conf=joint_timeout=7,other=1", "train.py");
    ck_assert_str_eq(
        spec.notes,
        "--rdzv-conf: unknown setting 'joint_timeout' ignored; see --rdzv-conf in ddprun(1)\n");
}
END_TEST

START_TEST(long_settings_are_refused)
{
    struct cli_conf conf;
    char text[400];
    memset(text, 'k', sizeof text);
    text[sizeof text - 1] = '\0';
    text[CLI_CONF_KEY_BYTES] = '=';
    ck_assert_int_eq(cli_conf_parse("--rdzv-conf", text, &conf, &err), -EINVAL);
    text[CLI_CONF_KEY_BYTES - 1] = '=';
    text[CLI_CONF_KEY_BYTES] = 'v';
    ck_assert_int_eq(cli_conf_parse("--rdzv-conf", text, &conf, &err), -EINVAL);
    text[CLI_CONF_KEY_BYTES + 1] = '\0';
    ck_assert_int_eq(cli_conf_parse("--rdzv-conf", text, &conf, &err), 0);
    ck_assert_uint_eq(strlen(conf.unknown), CLI_CONF_KEY_BYTES - 1);
    ck_assert_int_eq(cli_conf_parse("--rdzv-conf", " \t", &conf, &err), 0);
    ck_assert_str_eq(conf.unknown, "");
}
END_TEST

START_TEST(a_node_may_specify_its_address)
{
    JOB("ddprun", "-N2", C10D, "train.py");
    ck_assert_ptr_null(w->local_addr);
    ck_assert_ptr_null(w->node_name);
    JOB("ddprun", "-N2", C10D, "--local-addr=10.0.0.7", "train.py");
    ck_assert_str_eq(w->local_addr, "10.0.0.7");
    ck_assert_str_eq(w->node_name, "10.0.0.7");
}
END_TEST

START_TEST(secrets_and_guests_have_their_options)
{
    struct sockaddr_storage guest;
    JOB("ddprun", "-N2", C10D, "train.py");
    ck_assert(w->token_file == NULL && !w->require_token && w->store_allow == NULL);
    JOB("ddprun", "-N2", C10D, "--token-file", "secret", "--require-token",
        "--store-allow=10.0.0.0/8,fd00::/16", "train.py");
    ck_assert_str_eq(w->token_file, "secret");
    ck_assert(w->require_token);
    ck_assert_int_eq(address_parse("10.1.2.3", 0, &guest), 0);
    ck_assert(allow_has(w->store_allow, &guest));
    ck_assert_int_eq(address_parse("fd01::1", 0, &guest), 0);
    ck_assert(!allow_has(w->store_allow, &guest));
}
END_TEST

START_TEST(the_store_is_relayed_on_request)
{
    JOB("ddprun", "-N2", C10D, "train.py");
    ck_assert_int_eq(spec.store_relay, RELAY_OFF);
    JOB("ddprun", "-N2", C10D, "--store-relay=on", "--store=agent", "train.py");
    ck_assert_int_eq(spec.store_relay, RELAY_ON);
    JOB("ddprun", "-N2", C10D, "--store-relay=off", "--store=worker", "train.py");
    ck_assert_int_eq(spec.store_relay, RELAY_OFF);
}
END_TEST

START_TEST(data_is_encrypted_on_request)
{
    JOB("ddprun", "-N2", C10D, "train.py");
    ck_assert(!spec.encrypt);
    JOB("ddprun", "-N2", C10D, "--encrypt", "train.py");
    ck_assert(spec.encrypt);
}
END_TEST

START_TEST(variables_can_specify_everything)
{
    fake.env = (const char *[]){"PATH=/usr/bin",
                                "PET_NNODES=1:3",
                                "PET_RDZV_BACKEND=c10d",
                                "PET_RDZV_ENDPOINT=node1:29401",
                                "PET_RDZV_ID=job8",
                                "PET_RDZV_CONF=last_call_timeout=5",
                                "PET_NODE_RANK=2",
                                "PET_LOCAL_ADDR=node3",
                                NULL};
    JOB("ddprun", "train.py");
    ck_assert(w->has_others);
    ck_assert_uint_eq(w->min_nodes, 1);
    ck_assert_str_eq(w->endpoint_host, "node1");
    ck_assert_str_eq(spec.run_id, "job8");
    ck_assert_uint_eq(w->window_ms, 5000);
    ck_assert_int_eq(w->node_rank, 2);
    ck_assert_str_eq(w->local_addr, "node3");
}
END_TEST

START_TEST(names_fit_into_messages)
{
    char name[MESSAGE_RUN_ID_BYTES + 1];
    memset(name, 'x', sizeof name);
    name[MESSAGE_RUN_ID_BYTES] = '\0';
    ck_assert_int_eq(parse((const char *[]){"ddprun", "-N2", "--node-rank=0", "--rdzv-id", name,
                                            "train.py", NULL}),
                     -EINVAL);
    ck_assert_str_eq(err.text, "--rdzv-id is too long: expected at most 255 bytes");
    name[MESSAGE_RUN_ID_BYTES - 1] = '\0';
    JOB("ddprun", "-N2", "--node-rank=0", "--rdzv-id", name, "--master-addr", name, "train.py");
    ck_assert_str_eq(w->endpoint_host, name);
    name[MESSAGE_NAME_BYTES] = '\0';
    ck_assert_int_eq(parse((const char *[]){"ddprun", "-N2", "--node-rank=0", "--local-addr", name,
                                            "train.py", NULL}),
                     -EINVAL);
    ck_assert_str_eq(
        err.text,
        "invalid value for --local-addr: expected a host name or address of 1 to 127 characters");
}
END_TEST

START_TEST(terms_equal_those_of_the_command_line)
{
    struct message_terms terms;
    JOB("ddprun", "-N2:4", C10D, "--max-restarts=3/10m", "--no-restart-on=9",
        "--exclude-node-after=2/1h", "train.py");
    job_spec_terms(&spec, &terms);
    ck_assert_uint_eq(terms.min_nodes, 2);
    ck_assert_uint_eq(terms.max_nodes, 4);
    ck_assert_uint_eq(terms.max_restarts, 3);
    ck_assert_uint_eq(terms.restart_window_ms, 600000);
    ck_assert_uint_eq(terms.no_restart_on[1], 2);
    ck_assert_uint_eq(terms.start_timeout_ms, 600000);
    ck_assert_uint_eq(terms.exclude_after, 2);
    ck_assert_uint_eq(terms.exclude_window_ms, 3600000);
}
END_TEST

TEST_SUITE(cli_rdzv)
{
    Suite *suite = suite_create("cli_rdzv");
    TCase *c = tcase_create("cli_rdzv");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, segments_are_whole_groups_of_nodes);
    tcase_add_test(c, spares_are_nodes_beyond_those_that_are_active);
    tcase_add_test(c, one_node_needs_no_peers);
    tcase_add_test(c, nodes_rendezvous_at_the_endpoint);
    tcase_add_test(c, with_static_the_node_with_rank_0_is_the_endpoint);
    tcase_add_test(c, the_backend_follows_from_other_options);
    tcase_add_test(c, an_address_without_effect_causes_a_note);
    tcase_add_test(c, all_ranks_are_shared_out);
    tcase_add_test(c, times_have_defaults);
    tcase_add_test(c, times_can_be_given);
    tcase_add_test(c, torchruns_settings_are_understood);
    tcase_add_test(c, etcd_has_both_of_torchruns_backend_names);
    tcase_add_test(c, etcd_credentials_have_both_of_torchruns_names);
    tcase_add_test(c, failover_is_a_setting_of_nodes_that_find_their_coordinator_themselves);
    tcase_add_test(c, kubernetes_starts_the_endpoint_again);
    tcase_add_test(c, a_list_of_endpoints_begins_with_the_one_where_the_job_begins);
    tcase_add_test(c, a_bad_list_of_endpoints_is_rejected);
    tcase_add_test(c, a_setting_of_another_backend_is_ignored);
    tcase_add_test(c, an_unknown_setting_causes_a_note);
    tcase_add_test(c, long_settings_are_refused);
    tcase_add_test(c, a_node_may_specify_its_address);
    tcase_add_test(c, secrets_and_guests_have_their_options);
    tcase_add_test(c, the_store_is_relayed_on_request);
    tcase_add_test(c, data_is_encrypted_on_request);
    tcase_add_test(c, variables_can_specify_everything);
    tcase_add_test(c, names_fit_into_messages);
    tcase_add_test(c, terms_equal_those_of_the_command_line);
    suite_add_tcase(suite, c);
    return suite;
}
