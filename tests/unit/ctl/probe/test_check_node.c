/* What a node is looked at with: the kernel's files, another program, GPUs (by what nvidia-smi
 * printed, and was written down: tests/data/check/gpus), and the network, by real sockets. */
#include "common/buf.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "ctl/check/check_gpus.h"
#include "ctl/probe/check_collect.h"
#include "ctl/probe/check_net.h"
#include "ctl/probe/check_resolve.h"
#include "ctl/probe/check_run.h"
#include "ctl/probe/check_stream.h"
#include "tests/support/suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct check_facts f;
static struct co_error err;

static void set_up(void)
{
    memset(&f, 0, sizeof f);
    err = (struct co_error){0};
}

/* --- GPUs --- */

static size_t read_gpus(const char *name)
{
    static char text[65536];
    char path[4096];
    snprintf(path, sizeof path, "%s/check/gpus/%s", getenv("TEST_DATA"), name);
    co_autoclose FILE *in = fopen(path, "re");
    ck_assert_msg(in != NULL, "%s", path);
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    return check_gpus_read(text, &f);
}

START_TEST(each_line_of_nvidia_smi_is_a_gpu)
{
    ck_assert_uint_eq(read_gpus("hgx"), 8);
    ck_assert_uint_eq(f.n_described, 8);
    ck_assert_str_eq(f.driver, "535.104.05");
    ck_assert_str_eq(f.gpus[7].name, "NVIDIA H100 80GB HBM3");
    ck_assert_uint_eq(f.gpus[0].ecc_errors, 0);
    ck_assert_uint_eq(f.gpus[7].ecc_errors, 3);
}
END_TEST

START_TEST(a_gpu_without_ecc_has_an_unknown_error_count)
{
    ck_assert_uint_eq(read_gpus("without-ecc"), 1);
    ck_assert(f.gpus[0].ecc_errors == CHECK_UNKNOWN);
    ck_assert_uint_eq(read_gpus("name-with-commas"), 1);
    ck_assert_str_eq(f.gpus[0].name, "A, B, C");
    ck_assert_uint_eq(f.gpus[0].ecc_errors, 7);
}
END_TEST

START_TEST(other_lines_are_skipped)
{
    ck_assert_uint_eq(read_gpus("warnings-around"), 1);
    ck_assert_str_eq(f.driver, "470.57.02");
    static const char *const none[] = {"failed", "empty", "one-comma", "no-name", "long-line"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        ck_assert_msg(read_gpus(none[i]) == 0, "%s", none[i]);
}
END_TEST

START_TEST(gpus_above_the_limit_are_only_counted)
{
    ck_assert_uint_eq(read_gpus("many"), 100);
    ck_assert_uint_eq(f.n_described, CHECK_GPUS_MAX);
    ck_assert_uint_eq(read_gpus("name-with-escape"), 1);
    ck_assert_str_eq(f.gpus[0].name, "AB");
}
END_TEST

static const struct {
    const char *text, *version;
} drivers[] = {
    {"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\nGCC version: 1.2.3",
     "535.104.05"},
    {"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build",
     "550.54.14"},
    {"", ""},
    {"NVRM version:\n535.1", ""},
    {"535", ""},
};

START_TEST(the_drivers_file_has_its_version)
{
    char version[CHECK_SHORT_BYTES];
    check_gpus_read_version(drivers[_i].text, version, sizeof version);
    ck_assert_str_eq(version, drivers[_i].version);
}
END_TEST

START_TEST(nccl_encodes_versions_in_two_ways)
{
    char text[CHECK_SHORT_BYTES];
    check_gpus_print_nccl(22809, text, sizeof text);
    ck_assert_str_eq(text, "2.28.9");
    check_gpus_print_nccl(2708, text, sizeof text);
    ck_assert_str_eq(text, "2.7.8");
    check_gpus_print_nccl(0, text, sizeof text);
    ck_assert_str_eq(text, "");
}
END_TEST

/* --- this machine --- */

static void put(const char *folder, const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *at = path + strlen(folder) + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = '\0';
        mkdir(path, 0755);
    }
    if (text == NULL) {
        mkdir(path, 0755);
        return;
    }
    co_autoclose FILE *out = fopen(path, "we");
    ck_assert(out != NULL && fputs(text, out) >= 0);
}

static void remove_all(const char *folder)
{
    char command[4200];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(the_kernels_files_are_read)
{
    char folder[] = "/tmp/ddp-check-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    put(folder, "proc/sys/net/core/somaxconn", "4096\n");
    put(folder, "proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
    put(folder, "sys/class/infiniband/mlx5_0", NULL);
    check_collect_files(folder, &f);
    ck_assert_uint_eq(f.somaxconn, 4096);
    ck_assert_uint_eq(f.first_port, 32768);
    ck_assert_uint_eq(f.last_port, 60999);
    ck_assert_uint_eq(f.n_rdma, 1);
    put(folder, "proc/sys/net/core/somaxconn", "many\n");
    put(folder, "proc/sys/net/ipv4/ip_local_port_range", "32768");
    check_collect_files(folder, &f);
    ck_assert(f.somaxconn == CHECK_UNKNOWN && f.last_port == CHECK_UNKNOWN);
    remove_all(folder);
    check_collect_files(folder, &f);
    ck_assert(f.somaxconn == CHECK_UNKNOWN && f.first_port == CHECK_UNKNOWN && f.n_rdma == 0);
}
END_TEST

START_TEST(shared_memory_has_a_size_or_an_error)
{
    check_collect_shm("/tmp", &f);
    ck_assert_str_eq(f.no_shm, "");
    ck_assert(f.shm_free <= f.shm_bytes && f.shm_bytes < CHECK_UNKNOWN);
    check_collect_shm("/no/such/folder", &f);
    ck_assert_str_eq(f.no_shm, "No such file or directory");
    ck_assert(f.shm_bytes == CHECK_UNKNOWN);
}
END_TEST

START_TEST(limits_are_those_of_this_process)
{
    check_collect_limits(&f);
    ck_assert(f.nofile > 0 && f.nofile <= f.nofile_hard);
    ck_assert(f.memlock != CHECK_UNKNOWN);
}
END_TEST

START_TEST(a_name_is_resolved_or_times_out)
{
    check_resolve_find("127.0.0.1", 60000, &f);
    ck_assert_str_ne(f.host, "");
    ck_assert_int_ne(f.forward, CHECK_NAME_SKIPPED);
    check_resolve_find("127.0.0.1", 0, &f); /* the abandoned thread ends by itself */
    ck_assert_int_ne(f.forward, CHECK_NAME_SKIPPED);
}
END_TEST

START_TEST(ddprun_prints_its_version_or_there_is_an_error)
{
    check_collect_version("/no/such/ddprun", 60000, &f);
    ck_assert_str_eq(f.version, "");
    ck_assert_str_eq(f.no_version, "/no/such/ddprun: No such file or directory");
    char folder[] = "/tmp/ddp-check-XXXXXX", path[64], wanted[128];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    put(folder, "ddprun", "#!/bin/sh\necho ${0##*/} 7.1; [ $# = 1 ]\n");
    put(folder, "other", "#!/bin/sh\necho a talk\n");
    snprintf(path, sizeof path, "%s/ddprun", folder);
    chmod(path, 0755);
    check_collect_version(path, 60000, &f);
    ck_assert_str_eq(f.version, "7.1");
    snprintf(path, sizeof path, "%s/other", folder);
    chmod(path, 0755);
    check_collect_version(path, 60000, &f);
    snprintf(wanted, sizeof wanted, "%s printed 'a talk'", path);
    ck_assert_str_eq(f.no_version, wanted);
    remove_all(folder);
}
END_TEST

/* --- another program --- */

static int run(const char *script, uint64_t timeout_ms, char *text, size_t n)
{
    const char *const words[] = {"sh", "-c", script, NULL};
    return check_run(words, timeout_ms, text, n, &err);
}

START_TEST(a_programs_stdout_and_stderr_are_read)
{
    char text[64];
    ck_assert_int_eq(run("echo one; echo two >&2; cat", 60000, text, sizeof text), 0);
    ck_assert_str_eq(text, "one\ntwo\n");
    ck_assert_int_eq(run("seq 100000", 60000, text, sizeof text), 0);
    ck_assert_uint_eq(strlen(text), sizeof text - 1);
}
END_TEST

START_TEST(a_program_that_fails_gives_its_reason)
{
    char text[64];
    ck_assert_int_eq(run("echo bad >&2; exit 9", 60000, text, sizeof text), -EIO);
    ck_assert_str_eq(err.text, "sh exited with status 9: bad");
    ck_assert_int_eq(run("kill -9 $$", 60000, text, sizeof text), -EIO);
    ck_assert_str_eq(err.text, "sh was killed by signal 9");
}
END_TEST

START_TEST(a_program_that_does_not_end_is_killed)
{
    char text[64];
    ck_assert_int_eq(run("exec sleep 1000", 50, text, sizeof text), -ETIMEDOUT);
    ck_assert_int_eq(run("exec sleep 1000 >&- 2>&-", 50, text, sizeof text), -ETIMEDOUT);
    ck_assert_str_eq(err.text, "sh: timed out");
}
END_TEST

/* --- the network --- */

static const uint8_t secret[CHECK_SECRET_BYTES] = "0123456789abcde";
static struct check_server *server;
static struct sockaddr_storage peer;

static struct sockaddr_storage loopback(uint16_t port)
{
    struct sockaddr_storage a = {.ss_family = AF_INET};
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)&a;
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in->sin_port = htons(port);
    return a;
}

static void open_server(void)
{
    uint16_t port;
    set_up();
    ck_assert_int_eq(check_server_open(secret, &server, &port, &err), 0);
    peer = loopback(port);
}

static void close_server(void)
{
    check_server_close(server);
    server = NULL;
}

/* A listening socket that never accepts. */
static int listen_only(struct sockaddr_storage *ret)
{
    socklen_t len = sizeof(struct sockaddr_in);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *ret = loopback(0);
    ck_assert(bind(fd, (const struct sockaddr *)ret, len) == 0 && listen(fd, 8) == 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)ret, &len), 0);
    return fd;
}

START_TEST(ports_answer_are_refused_or_are_silent)
{
    struct sockaddr_storage peers[2] = {peer};
    enum check_reach reach[2];
    int fd = listen_only(&peers[1]);
    check_net_reach(secret, &peers[1], 1, 300, reach);
    ck_assert_int_eq(reach[0], CHECK_REACH_SILENT);
    close(fd);
    check_net_reach(secret, peers, 2, 60000, reach);
    ck_assert_int_eq(reach[0], CHECK_REACH_OK);
    ck_assert_int_eq(reach[1], CHECK_REACH_REFUSED);
}
END_TEST

START_TEST(a_peer_without_the_secret_is_the_wrong_service)
{
    const uint8_t other[CHECK_SECRET_BYTES] = "another secret.";
    enum check_reach reach;
    struct check_pair pair = {.a = 0};
    check_net_reach(other, &peer, 1, 60000, &reach);
    ck_assert_int_eq(reach, CHECK_REACH_WRONG_SERVICE);
    ck_assert_int_lt(check_net_measure(other, &peer, 60000, &pair, &err), 0);
}
END_TEST

START_TEST(many_peers_connect_at_once)
{
    struct sockaddr_storage peers[CHECK_CONNECTIONS_MAX];
    enum check_reach reach[CHECK_CONNECTIONS_MAX];
    for (size_t i = 0; i < CHECK_CONNECTIONS_MAX; i++)
        peers[i] = peer;
    check_net_reach(secret, peers, CHECK_CONNECTIONS_MAX, 60000, reach);
    for (size_t i = 0; i < CHECK_CONNECTIONS_MAX; i++)
        ck_assert_int_eq(reach[i], CHECK_REACH_OK);
}
END_TEST

static int connect_to_server(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&peer, sizeof(struct sockaddr_in)), 0);
    return fd;
}

START_TEST(silent_connections_do_not_keep_a_peer_out)
{
    enum { N = 3 * CHECK_CONNECTIONS_MAX }; /* each could hold a seat for CHECK_IDLE_MS */
    int fds[N];
    enum check_reach reach;
    for (int i = 0; i < N; i++)
        fds[i] = connect_to_server();
    check_net_reach(secret, &peer, 1, 60000, &reach);
    ck_assert_int_eq(reach, CHECK_REACH_OK);
    for (int i = 0; i < N; i++)
        close(fds[i]);
}
END_TEST

START_TEST(a_greeting_byte_by_byte_does_not_keep_its_connection)
{
    int fd = connect_to_server();
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n_sent = 0;
    while (n_sent < CHECK_SECRET_BYTES && poll(&p, 1, CHECK_IDLE_MS / 5) == 0)
        n_sent += (int)send(fd, &secret[n_sent], 1, MSG_NOSIGNAL);
    ck_assert_int_lt(n_sent, CHECK_SECRET_BYTES);
    close(fd);
}
END_TEST

START_TEST(a_connection_is_measured_in_both_directions)
{
    struct check_pair pair = {.a = 0};
    ck_assert_msg(check_net_measure(secret, &peer, 60000, &pair, &err) == 0, "%s", err.text);
    ck_assert(pair.rtt_min_ns > 0 && pair.rtt_min_ns <= pair.rtt_median_ns);
    ck_assert(pair.forth > 0 && pair.back > 0);
}
END_TEST

START_TEST(an_endless_stream_times_out)
{
    int pair[2];
    uint64_t n_bytes;
    co_autofree uint8_t *chunk = calloc(1, CHECK_CHUNK_BYTES);
    ck_assert_ptr_nonnull(chunk);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ck_assert_int_eq(send(pair[0], "more", 4, 0), 4);
    ck_assert_int_eq(check_stream_drain(pair[1], chunk, co_now_ms(), &n_bytes), -ETIMEDOUT);
    ck_assert_uint_eq(n_bytes, 4);
    ck_assert_int_eq(send(pair[0], "rest", 4, 0), 4);
    close(pair[0]);
    ck_assert_int_eq(check_stream_drain(pair[1], chunk, CO_NEVER_MS, &n_bytes), 0);
    ck_assert_uint_eq(n_bytes, 4);
    close(pair[1]);
}
END_TEST

START_TEST(a_slow_stream_times_out)
{
    int pair[2];
    char bytes[8];
    co_autofree uint8_t *chunk = calloc(1, CHECK_CHUNK_BYTES);
    ck_assert_ptr_nonnull(chunk);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ck_assert_int_eq(send(pair[0], "four", 4, 0), 4);
    ck_assert_int_eq(check_stream_receive(pair[1], bytes, 8, co_now_ms()), -ETIMEDOUT);
    ck_assert_int_eq(send(pair[0], "8 of 'em", 8, 0), 8);
    ck_assert_int_eq(check_stream_receive(pair[1], bytes, 8, co_now_ms()), 0);
    check_stream_be_patient(pair[0], 50); /* no process reads: only a part is sent */
    ck_assert_int_eq(check_stream_send(pair[0], chunk, CHECK_CHUNK_BYTES, co_now_ms()), -ETIMEDOUT);
    close(pair[0]);
    close(pair[1]);
}
END_TEST

START_TEST(a_refused_connection_is_not_measured)
{
    struct check_pair pair = {.a = 0};
    close_server();
    ck_assert_int_eq(check_net_measure(secret, &peer, 60000, &pair, &err), -ECONNREFUSED);
    ck_assert_str_eq(err.text, "Connection refused");
}
END_TEST

START_TEST(a_server_stops_despite_idle_connections)
{
    enum { N = 8 };
    int fds[N];
    for (int i = 0; i < N; i++) {
        uint8_t hello[CHECK_SECRET_BYTES + 1], byte;
        fds[i] = connect_to_server();
        memcpy(hello, secret, sizeof secret);
        hello[CHECK_SECRET_BYTES] = 's';
        ck_assert_int_eq(send(fds[i], hello, i % 2 == 0 ? sizeof hello : 3, 0),
                         i % 2 == 0 ? sizeof hello : 3);
        if (i % 2 == 0)
            ck_assert_int_eq(recv(fds[i], &byte, 1, 0), 1);
    }
    close_server();
    for (int i = 0; i < N; i++)
        close(fds[i]);
}
END_TEST

TEST_SUITE(check_node)
{
    Suite *suite = suite_create("check_node");
    TCase *c = tcase_create("machine");
    tcase_add_checked_fixture(c, set_up, NULL);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, each_line_of_nvidia_smi_is_a_gpu);
    tcase_add_test(c, a_gpu_without_ecc_has_an_unknown_error_count);
    tcase_add_test(c, other_lines_are_skipped);
    tcase_add_test(c, gpus_above_the_limit_are_only_counted);
    tcase_add_loop_test(c, the_drivers_file_has_its_version, 0,
                        (int)(sizeof drivers / sizeof *drivers));
    tcase_add_test(c, nccl_encodes_versions_in_two_ways);
    tcase_add_test(c, the_kernels_files_are_read);
    tcase_add_test(c, shared_memory_has_a_size_or_an_error);
    tcase_add_test(c, limits_are_those_of_this_process);
    tcase_add_test(c, a_name_is_resolved_or_times_out);
    tcase_add_test(c, ddprun_prints_its_version_or_there_is_an_error);
    tcase_add_test(c, a_programs_stdout_and_stderr_are_read);
    tcase_add_test(c, a_program_that_fails_gives_its_reason);
    tcase_add_test(c, a_program_that_does_not_end_is_killed);
    TCase *net = tcase_create("network");
    tcase_add_checked_fixture(net, open_server, close_server);
    tcase_set_timeout(net, 60);
    tcase_add_test(net, ports_answer_are_refused_or_are_silent);
    tcase_add_test(net, a_peer_without_the_secret_is_the_wrong_service);
    tcase_add_test(net, many_peers_connect_at_once);
    tcase_add_test(net, silent_connections_do_not_keep_a_peer_out);
    tcase_add_test(net, a_greeting_byte_by_byte_does_not_keep_its_connection);
    tcase_add_test(net, a_connection_is_measured_in_both_directions);
    tcase_add_test(net, an_endless_stream_times_out);
    tcase_add_test(net, a_slow_stream_times_out);
    tcase_add_test(net, a_refused_connection_is_not_measured);
    tcase_add_test(net, a_server_stops_despite_idle_connections);
    suite_add_tcase(suite, c);
    suite_add_tcase(suite, net);
    return suite;
}
