/* What ddpctl check finds wrong with nodes, and how it shows it. */
#include "ctl/check/check_report.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct check_report r;

/* Three nodes with which nothing is wrong. */
static void set_up(void)
{
    static const char *const names[] = {"n1", "n2", "n3"};
    ck_assert_int_eq(check_report_init(&r, 3), 0);
    for (size_t i = 0; i < 3; i++) {
        struct check_node *n = &r.nodes[i];
        *n = (struct check_node){.name = names[i],
                                 .is_up = true,
                                 .reach_ms = 210,
                                 .has_clock = true,
                                 .offset_ns = 1200000,
                                 .error_ns = 400000,
                                 .has_facts = true};
        snprintf(n->address, sizeof n->address, "10.0.0.%zu", i + 1);
        n->facts = (struct check_facts){.version = "1.0",
                                        .nofile = 1024,
                                        .nofile_hard = 1048576,
                                        .memlock = 65536,
                                        .somaxconn = 4096,
                                        .shm_bytes = (uint64_t)64 << 30,
                                        .shm_free = (uint64_t)63 << 30,
                                        .first_port = 32768,
                                        .last_port = 60999,
                                        .port = 40000 + i,
                                        .token_id = "0123456789abcdef"};
        snprintf(n->facts.host, sizeof n->facts.host, "%s", names[i]);
    }
}

static void tear_down(void)
{
    check_report_fini(&r);
}

static void judge(void)
{
    ck_assert_int_eq(check_rules(&r, "1.0"), 0);
}

/* There is this finding, and no other. */
static void expect_one(size_t node, enum check_field field, bool is_failure, const char *text)
{
    judge();
    ck_assert_uint_eq(r.n_findings, 1);
    const struct check_finding *f = &r.findings[0];
    ck_assert_uint_eq(f->node, node);
    ck_assert_int_eq(f->field, field);
    ck_assert_int_eq(f->is_failure, is_failure);
    ck_assert_str_eq(f->text, text);
    ck_assert_int_eq(check_has_failed(&r), is_failure);
}

static char *print(void)
{
    static char text[8192];
    FILE *out = fmemopen(text, sizeof text, "w");
    ck_assert_int_eq(check_text_print(&r, out), 0);
    fclose(out);
    return text;
}

START_TEST(healthy_nodes_have_no_findings)
{
    judge();
    ck_assert_uint_eq(r.n_findings, 0);
    ck_assert(!check_has_failed(&r));
    ck_assert_str_eq(print(), "NODE  STATE   REACH  VERSION             CLOCK    FILES  LOCKED  "
                              "QUEUE      SHM  NAME  PORTS  TOKEN  GPUS\n"
                              "n1    ok     0.21 s  1.0      +1.200+-0.400 ms  1048576     64K   "
                              "4096  63G/64G  n1    -      same   -\n"
                              "n2    ok     0.21 s  1.0      +1.200+-0.400 ms  1048576     64K   "
                              "4096  63G/64G  n2    -      same   -\n"
                              "n3    ok     0.21 s  1.0      +1.200+-0.400 ms  1048576     64K   "
                              "4096  63G/64G  n3    -      same   -\n"
                              "\n"
                              "3 nodes, 0 failed, 0 with warnings\n");
}
END_TEST

START_TEST(a_node_that_cannot_be_reached_is_a_row_and_a_reason)
{
    r.nodes[1] = (struct check_node){.name = "n2", .why = "ssh: no route"};
    expect_one(1, CHECK_REACH, true, "cannot be reached: ssh: no route");
    char *text = print();
    ck_assert_ptr_nonnull(strstr(text, "\nn2    failed      -!  -  "));
    ck_assert_ptr_nonnull(strstr(
        text,
        "\nn2: failed: reach: cannot be reached: ssh: no route\n    try: log in as ddprun does"));
    ck_assert_ptr_nonnull(strstr(text, "3 nodes, 1 failed, 0 with warnings\n"));
}
END_TEST

START_TEST(another_version_fails)
{
    snprintf(r.nodes[2].facts.version, sizeof r.nodes[2].facts.version, "0.9");
    expect_one(2, CHECK_VERSION, true, "its ddprun is 0.9, but this node's is 1.0");
}
END_TEST

START_TEST(no_ddprun_fails)
{
    r.nodes[2].facts.version[0] = '\0';
    snprintf(r.nodes[2].facts.no_version, CHECK_TEXT_BYTES, "/opt/ddprun: No such file");
    expect_one(2, CHECK_VERSION, true, "no ddprun: /opt/ddprun: No such file");
}
END_TEST

START_TEST(a_clock_is_off_only_beyond_the_uncertainty)
{
    r.nodes[0].offset_ns = 1300000000;
    r.nodes[0].error_ns = 310000000; /* it may be less than a second */
    judge();
    ck_assert_uint_eq(r.n_findings, 0);
    r.nodes[0].offset_ns = -1300000000;
    r.nodes[0].error_ns = 290000000;
    expect_one(0, CHECK_CLOCK, true,
               "its clock is 1.300 s earlier than the clock of this node (uncertainty 0.290 s)");
}
END_TEST

START_TEST(too_few_files_fail)
{
    r.nodes[0].facts.nofile_hard = 1023;
    expect_one(0, CHECK_NOFILE, true, "the limit of open files is only 1023");
}
END_TEST

START_TEST(with_rdma_the_limit_of_locked_memory_is_checked)
{
    r.nodes[0].facts.n_rdma = 2;
    expect_one(0, CHECK_MEMLOCK, true,
               "the limit of locked memory is only 64 KiB, and RDMA locks its buffers");
}
END_TEST

START_TEST(a_short_queue_is_a_warning)
{
    r.nodes[0].facts.somaxconn = 127;
    expect_one(0, CHECK_BACKLOG, false,
               "the kernel queues only 127 connections: simultaneous ones beyond that are delayed");
}
END_TEST

START_TEST(shared_memory_that_is_full_fails)
{
    r.nodes[0].facts.shm_free = 0;
    expect_one(0, CHECK_SHM, true, "/dev/shm has 0 of 65536 MiB free");
}
END_TEST

START_TEST(a_container_s_usual_shared_memory_is_a_warning)
{
    r.nodes[0].facts.shm_bytes = r.nodes[0].facts.shm_free = (uint64_t)64 << 20;
    expect_one(0, CHECK_SHM, false, "/dev/shm has only 64 MiB, which data loaders fill quickly");
}
END_TEST

START_TEST(names_that_resolve_to_other_hosts_fail)
{
    struct check_facts *f = &r.nodes[0].facts;
    f->forward = CHECK_NAME_FOREIGN;
    snprintf(f->forward_to, sizeof f->forward_to, "10.9.9.9");
    expect_one(0, CHECK_NAMES, true, "its own name, n1, resolves to another machine: 10.9.9.9");
}
END_TEST

START_TEST(names_that_only_this_node_can_use_are_a_warning)
{
    struct check_facts *f = &r.nodes[0].facts;
    f->forward = CHECK_NAME_LOOPBACK;
    snprintf(f->forward_to, sizeof f->forward_to, "127.0.1.1");
    expect_one(0, CHECK_NAMES, false,
               "its own name, n1, resolves to 127.0.1.1, which no other node can reach");
}
END_TEST

START_TEST(an_address_with_the_name_of_another_host_fails)
{
    struct check_facts *f = &r.nodes[1].facts;
    f->reverse = CHECK_NAME_FOREIGN;
    snprintf(f->reverse_to, sizeof f->reverse_to, "printer");
    expect_one(1, CHECK_NAMES, true, "its address resolves to printer, which is another machine");
}
END_TEST

START_TEST(a_missing_or_different_token_fails)
{
    r.nodes[1].facts.token_id[0] = '\0';
    snprintf(r.nodes[2].facts.token_id, CHECK_SHORT_BYTES, "fedcba9876543210");
    judge();
    ck_assert_uint_eq(r.n_findings, 2);
    ck_assert_str_eq(r.findings[0].text, "it has no token, but n1 has one");
    ck_assert_str_eq(r.findings[1].text, "it has another token than n1");
    ck_assert_ptr_nonnull(strstr(print(), "other!"));
}
END_TEST

START_TEST(no_token_on_any_node_passes)
{
    for (size_t i = 0; i < r.n_nodes; i++)
        r.nodes[i].facts.token_id[0] = '\0';
    judge();
    ck_assert_uint_eq(r.n_findings, 0);
}
END_TEST

START_TEST(unreachable_connections_are_reported_together)
{
    r.links = calloc(3, sizeof *r.links);
    r.n_links = 3;
    r.links[0] = (struct check_link){.from = 0, .to = 1, .reach = CHECK_REACH_SILENT};
    r.links[1] = (struct check_link){.from = 2, .to = 1, .reach = CHECK_REACH_SILENT};
    r.links[2] = (struct check_link){.from = 1, .to = 2, .reach = CHECK_REACH_OK};
    expect_one(1, CHECK_PORTS, true,
               "a connection to its port 40001 at 10.0.0.2 gets no answer, from 2 nodes: n1, n3");
    ck_assert_ptr_nonnull(strstr(r.findings[0].hint, "firewall"));
    ck_assert_ptr_nonnull(strstr(print(), "n3    ok     "));
}
END_TEST

START_TEST(a_node_without_an_address_fails)
{
    r.nodes[0].address[0] = '\0';
    r.interface = "ib0";
    expect_one(0, CHECK_PORTS, true,
               "it has no address that other nodes could reach on the interface ib0");
}
END_TEST

static void give_gpus(size_t node, uint64_t n)
{
    struct check_facts *f = &r.nodes[node].facts;
    f->n_gpus = n;
    f->n_described = n;
    snprintf(f->driver, sizeof f->driver, "535.104.05");
    snprintf(f->nccl, sizeof f->nccl, "2.18.5");
    for (uint64_t k = 0; k < n; k++)
        f->gpus[k] = (struct check_gpu){.name = "H100", .ecc_errors = 0};
}

START_TEST(fewer_gpus_than_others_are_a_warning)
{
    give_gpus(0, 8);
    give_gpus(1, 8);
    give_gpus(2, 7);
    expect_one(2, CHECK_GPUS, false, "it has 7 GPUs, and others have 8");
    ck_assert_ptr_nonnull(strstr(print(), "7 535.104.05 nccl 2.18.5?\n"));
}
END_TEST

START_TEST(errors_of_a_gpu_s_memory_fail)
{
    for (size_t i = 0; i < 3; i++)
        give_gpus(i, 8);
    r.nodes[1].facts.gpus[3].ecc_errors = 2;
    r.nodes[1].facts.gpus[4].ecc_errors = CHECK_UNKNOWN;
    expect_one(1, CHECK_GPUS, true, "GPU 3 has 2 uncorrectable memory errors");
}
END_TEST

START_TEST(other_drivers_and_libraries_are_warnings)
{
    for (size_t i = 0; i < 3; i++)
        give_gpus(i, 1);
    snprintf(r.nodes[1].facts.driver, CHECK_SHORT_BYTES, "470.57");
    r.nodes[2].facts.nccl[0] = '\0';
    judge();
    ck_assert_uint_eq(r.n_findings, 2);
    ck_assert_str_eq(r.findings[0].text, "its driver is 470.57, but n1 has 535.104.05");
    ck_assert_str_eq(r.findings[1].text, "its NCCL is not there, but n1 has 2.18.5");
}
END_TEST

START_TEST(a_pair_that_is_slower_than_the_others_is_a_warning)
{
    r.pairs = calloc(3, sizeof *r.pairs);
    r.n_pairs = 3;
    r.has_net = true;
    for (size_t i = 0; i < 3; i++)
        r.pairs[i] = (struct check_pair){.a = i == 2,
                                         .b = i == 0 ? 1 : 2,
                                         .rtt_min_ns = 20000,
                                         .rtt_median_ns = 30000,
                                         .forth = 1000000000,
                                         .back = i == 2 ? 299000000 : 900000000};
    expect_one(1, CHECK_NET, false,
               "the bandwidth to n3 is 299.0 MB/s, but the median of all pairs is 900.0 MB/s");
    ck_assert_ptr_nonnull(strstr(print(), "0.030 ms  299.0?\n"));
}
END_TEST

START_TEST(a_pair_that_was_not_measured_fails)
{
    r.pairs = calloc(1, sizeof *r.pairs);
    r.n_pairs = 1;
    r.has_net = true;
    r.pairs[0] = (struct check_pair){.a = 0, .b = 1, .why = "Connection reset by peer"};
    expect_one(0, CHECK_NET, true, "the network to n2 was not measured: Connection reset by peer");
}
END_TEST

START_TEST(json_has_everything_except_the_token_ids)
{
    r.nodes[1] = (struct check_node){.name = "n2", .why = "no route"};
    judge();
    json_t *json = check_report_to_json(&r);
    char *text = json_dumps(json, JSON_COMPACT);
    ck_assert_ptr_nonnull(strstr(text,
                                 "{\"v\":1,\"ok\":false,\"nodes\":[{\"node\":\"n1\",\"up\":true,"
                                 "\"reach_ms\":210,\"clock\":{\"offset_ns\":1200000,"
                                 "\"error_ns\":400000},\"address\":\"10.0.0.1\",\"facts\":{"));
    ck_assert_ptr_nonnull(strstr(text, "{\"node\":\"n2\",\"up\":false,\"reach_ms\":null,"
                                       "\"why\":\"no route\",\"clock\":null,\"facts\":null}"));
    ck_assert_ptr_nonnull(strstr(text, "\"findings\":[{\"node\":\"n2\",\"what\":\"reach\","
                                       "\"level\":\"failed\",\"text\":\""));
    ck_assert_ptr_null(strstr(text, "0123456789abcdef"));
    free(text);
    json_decref(json);
}
END_TEST

TEST_SUITE(check_report)
{
    Suite *suite = suite_create("check_report");
    TCase *c = tcase_create("all");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, healthy_nodes_have_no_findings);
    tcase_add_test(c, a_node_that_cannot_be_reached_is_a_row_and_a_reason);
    tcase_add_test(c, another_version_fails);
    tcase_add_test(c, no_ddprun_fails);
    tcase_add_test(c, a_clock_is_off_only_beyond_the_uncertainty);
    tcase_add_test(c, too_few_files_fail);
    tcase_add_test(c, with_rdma_the_limit_of_locked_memory_is_checked);
    tcase_add_test(c, a_short_queue_is_a_warning);
    tcase_add_test(c, shared_memory_that_is_full_fails);
    tcase_add_test(c, a_container_s_usual_shared_memory_is_a_warning);
    tcase_add_test(c, names_that_resolve_to_other_hosts_fail);
    tcase_add_test(c, names_that_only_this_node_can_use_are_a_warning);
    tcase_add_test(c, an_address_with_the_name_of_another_host_fails);
    tcase_add_test(c, a_missing_or_different_token_fails);
    tcase_add_test(c, no_token_on_any_node_passes);
    tcase_add_test(c, unreachable_connections_are_reported_together);
    tcase_add_test(c, a_node_without_an_address_fails);
    tcase_add_test(c, fewer_gpus_than_others_are_a_warning);
    tcase_add_test(c, errors_of_a_gpu_s_memory_fail);
    tcase_add_test(c, other_drivers_and_libraries_are_warnings);
    tcase_add_test(c, a_pair_that_is_slower_than_the_others_is_a_warning);
    tcase_add_test(c, a_pair_that_was_not_measured_fails);
    tcase_add_test(c, json_has_everything_except_the_token_ids);
    suite_add_tcase(suite, c);
    return suite;
}
