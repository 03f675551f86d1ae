/* ddp-rendezvous's command line. */
#include "common/error.h"
#include "rendezvous/daemon/daemon_cli.h"
#include "rendezvous/net/address.h"
#include "tests/support/suite.h"
#include "tests/support/words.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Words are parted by blanks. returns as daemon_cli_parse() */
static int parse(const char *line, enum daemon_wish *wish, struct daemon_spec *spec,
                 struct co_error *err)
{
    int n;
    char **words = words_split("ddp-rendezvous", line, &n);
    return daemon_cli_parse(n, words, wish, spec, err);
}

static struct daemon_spec parsed(const char *line)
{
    struct daemon_spec spec;
    struct co_error err = {0};
    enum daemon_wish wish;
    ck_assert_msg(parse(line, &wish, &spec, &err) == 0, "%s", err.text);
    ck_assert_int_eq(wish, DAEMON_RUN);
    return spec;
}

#define MIB ((uint64_t)1 << 20)

START_TEST(without_options_the_defaults_hold)
{
    struct daemon_spec spec = parsed("");
    ck_assert_uint_eq(spec.n_binds, 0);
    ck_assert_uint_eq(spec.allow.n, 0);
    ck_assert_ptr_null(spec.port_file);
    ck_assert_uint_eq(spec.max_bytes, 1024 * MIB);
    ck_assert_uint_eq(spec.max_buffer_bytes, 1024 * MIB);
    ck_assert_uint_eq(spec.max_value_bytes, 64 * MIB);
    ck_assert_uint_eq(spec.max_clients, 0);
    ck_assert_uint_eq(spec.max_jobs, 0);
    ck_assert_uint_eq(spec.max_nodes, 0);
    ck_assert_uint_eq(spec.max_node_bytes, 256 * MIB);
    ck_assert_ptr_null(spec.token_file);
    ck_assert_ptr_null(spec.http_hosts);
    ck_assert(!spec.no_jobs);
    ck_assert_uint_eq(spec.mid_frame_ms, 30000);
    ck_assert_uint_eq(spec.lease_ms, 3000);
    ck_assert(!spec.verbose);
}
END_TEST

START_TEST(options_are_accepted)
{
    struct daemon_spec spec =
        parsed("--bind 10.0.0.7:29500 -b [fd00::7]:0 --bind=[::] -b 0.0.0.0 --port-file ports "
               "--allow 10.0.0.0/24 --allow fd00::/8 --max-memory 513M --max-value 9M "
               "--max-clients 12 --max-jobs 3 --max-nodes 4 --token-file token --no-jobs "
               "--mid-frame-timeout=500ms --lease=2m --http-host gate,gate2 -v");
    ck_assert_uint_eq(spec.n_binds, 4);
    ck_assert_str_eq(spec.binds[0].host, "10.0.0.7");
    ck_assert_uint_eq(spec.binds[0].port, 29500);
    ck_assert_str_eq(spec.binds[1].host, "fd00::7");
    ck_assert_uint_eq(spec.binds[1].port, 0);
    ck_assert_str_eq(spec.binds[2].host, "::");
    ck_assert_uint_eq(spec.binds[2].port, 29400);
    ck_assert_uint_eq(spec.binds[3].port, 29400);
    ck_assert_str_eq(spec.port_file, "ports");
    struct sockaddr_storage address;
    ck_assert_int_eq(address_parse("10.0.0.9", 0, &address), 0);
    ck_assert(allow_has(&spec.allow, &address));
    ck_assert_uint_eq(spec.max_bytes + spec.max_buffer_bytes, 513 * MIB);
    ck_assert_uint_eq(spec.max_value_bytes, 9 * MIB);
    ck_assert_uint_eq(spec.max_clients, 12);
    ck_assert_uint_eq(spec.max_jobs, 3);
    ck_assert_uint_eq(spec.max_nodes, 4);
    ck_assert_str_eq(spec.token_file, "token");
    ck_assert(spec.no_jobs);
    ck_assert_uint_eq(spec.mid_frame_ms, 500);
    ck_assert_uint_eq(spec.lease_ms, 120000);
    ck_assert_str_eq(spec.http_hosts, "gate,gate2");
    ck_assert(spec.verbose);
}
END_TEST

START_TEST(a_value_is_an_eighth_of_the_memory_at_most)
{
    ck_assert_uint_eq(parsed("--max-memory 64M").max_value_bytes, 8 * MIB);
    ck_assert_uint_eq(parsed("--max-memory 80M").max_value_bytes, 10 * MIB);
    ck_assert_uint_eq(parsed("--max-memory 16G").max_value_bytes, 64 * MIB);
    ck_assert_uint_eq(parsed("--max-memory 16G --max-value 1G").max_value_bytes, 1024 * MIB);
    ck_assert_uint_eq(parsed("--max-value 256M").max_value_bytes, 256 * MIB);
}
END_TEST

static const struct {
    const char *line, *error;
} bad[] = {
    {"--bind", "option '--bind' requires a value: ADDR[:PORT]"},
    {"--bind localhost:1", "invalid value 'localhost:1' for --bind: expected a numeric address, "
                           "not 'localhost' (host names are not resolved)"},
    {"-b :29400",
     "invalid value ':29400' for -b: expected HOST[:PORT], with an IPv6 address in brackets"},
    {"--bind 127.0.0.1:65536",
     "invalid value '127.0.0.1:65536' for --bind: '65536' is not a port from 0 to 65535"},
    {"--bind fe80::1:2", "invalid value 'fe80::1:2' for --bind: ':1:2' is not a port from 0 to "
                         "65535; write an IPv6 address in brackets"},
    {"-b=1.1.1.1 -b=1.1.1.1 -b=1.1.1.1 -b=1.1.1.1 -b=1.1.1.1 -b=1.1.1.1 -b=1.1.1.1 -b=1.1.1.1 "
     "-b=1.1.1.1 -b=1.1.1.1 -b=1.1.1.1 -b=1.1.1.1 -b=1.1.1.1 -b=1.1.1.1 -b=1.1.1.1 -b=1.1.1.1 "
     "-b=1.1.1.1",
     "-b: more than 16 addresses"},
    {"--allow node7", "--allow: invalid value 'node7': expected a numeric ADDR or ADDR/BITS"},
    {"--allow 10.0.0.0/33",
     "--allow: invalid value '10.0.0.0/33': expected 0 to 32 bits, not '33'"},
    {"--http-host gate:80", "invalid value 'gate:80' for --http-host: expected names of hosts, "
                            "separated by commas, without ports, or *"},
    {"--max-memory 63M", "invalid value '63M' for --max-memory: expected a size from 64M to 16T"},
    {"--max-memory lots",
     "invalid value 'lots' for --max-memory: expected a size such as 4096, 64K, 64M or 1G"},
    {"--max-value 7M", "invalid value '7M' for --max-value: expected a size from 8M to 1G"},
    {"--max-value 257M",
     "--max-value exceeds an eighth of --max-memory: raise --max-memory to at least 2056M"},
    {"--max-memory 64M --max-value 9M",
     "--max-value exceeds an eighth of --max-memory: raise --max-memory to at least 72M"},
    {"--max-clients 0", "invalid value '0' for --max-clients: expected a number from 1 to 1000000"},
    {"--max-clients many", "invalid value 'many' for --max-clients: expected a number"},
    {"--mid-frame-timeout 0", "invalid value '0' for --mid-frame-timeout: expected 1ms to 24h"},
    {"--mid-frame-timeout 25h", "invalid value '25h' for --mid-frame-timeout: expected 1ms to 24h"},
    {"--mid-frame-timeout soon", "invalid value 'soon' for --mid-frame-timeout: expected a "
                                 "duration such as 90, 1.5s, 250ms, 10m or 2h"},
    {"--lease 0", "invalid value '0' for --lease: expected 500ms to 1h"},
    {"--lease 61m", "invalid value '61m' for --lease: expected 500ms to 1h"},
    {"--lease long",
     "invalid value 'long' for --lease: expected a duration such as 90, 1.5s, 250ms, 10m or 2h"},
    {"--bnid 1.1.1.1", "unknown option '--bnid': did you mean '--bind'?"},
    {"--max-jobs 0", "invalid value '0' for --max-jobs: expected a number from 1 to 65536"},
    {"--max-nodes 65537",
     "invalid value '65537' for --max-nodes: expected a number from 1 to 65536"},
    {"--max 3", "ambiguous option '--max': use one of --max-memory, --max-value, --max-clients, "
                "--max-jobs, --max-nodes"},
    {"127.0.0.1:29400",
     "unexpected argument '127.0.0.1:29400': ddp-rendezvous takes options only; see --help"},
};

START_TEST(wrong_usage_is_named)
{
    struct daemon_spec spec;
    struct co_error err = {0};
    enum daemon_wish wish;
    ck_assert_int_eq(parse(bad[_i].line, &wish, &spec, &err), -EINVAL);
    ck_assert_str_eq(err.text, bad[_i].error);
}
END_TEST

START_TEST(help_and_version_work_with_invalid_arguments)
{
    struct daemon_spec spec;
    enum daemon_wish wish;
    ck_assert_int_eq(parse("--help", &wish, &spec, NULL), 0);
    ck_assert_int_eq(wish, DAEMON_HELP);
    ck_assert_int_eq(parse("-V", &wish, &spec, NULL), 0);
    ck_assert_int_eq(wish, DAEMON_VERSION);
    ck_assert_int_eq(parse("-h what else", &wish, &spec, NULL), 0);
    ck_assert_int_eq(wish, DAEMON_HELP_BRIEF);
}
END_TEST

START_TEST(the_short_help_is_a_part_of_the_help)
{
    char brief[4096] = "", whole[16384] = "";
    FILE *out = fmemopen(brief, sizeof brief, "w");
    daemon_cli_print_help(true, out);
    fclose(out);
    out = fmemopen(whole, sizeof whole, "w");
    daemon_cli_print_help(false, out);
    fclose(out);
    for (const struct co_option *o = daemon_cli_table; o->id != 0; o++) {
        char name[80];
        snprintf(name, sizeof name, " --%s", o->name);
        ck_assert_msg(strstr(whole, name) != NULL, "%s", name);
        ck_assert_int_eq(strstr(brief, name) != NULL, o->brief != NULL);
    }
    ck_assert_ptr_nonnull(strstr(brief, "\nExamples:\n"));
}
END_TEST

TEST_SUITE(daemon_cli)
{
    Suite *suite = suite_create("daemon_cli");
    TCase *tc = tcase_create("daemon_cli");
    tcase_add_test(tc, without_options_the_defaults_hold);
    tcase_add_test(tc, options_are_accepted);
    tcase_add_test(tc, a_value_is_an_eighth_of_the_memory_at_most);
    tcase_add_loop_test(tc, wrong_usage_is_named, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(tc, help_and_version_work_with_invalid_arguments);
    tcase_add_test(tc, the_short_help_is_a_part_of_the_help);
    suite_add_tcase(suite, tc);
    return suite;
}
