/* The command line's part about output, and about reports of the job. */
#include "one_command_line.h"

#include <errno.h>

START_TEST(output_goes_to_its_destination)
{
    const struct output_spec *o = &spec.output;
    JOB("ddprun", "-n3", "train.py");
    ck_assert(o->redirects[2] == 0 && o->tees[2] == 0 && !o->hidden[2] && o->stdin_rank == 0);
    ck_assert(o->log_dir == NULL && o->label == NULL && o->line_prefix == NULL);
    ck_assert(o->filters[0] == NULL && o->filters[1] == NULL);
    JOB("ddprun", "-n13", "-r", "3", "--tee=0:1,12:2", "--local_ranks_filter", "0,12", "--log-dir",
        "logs", "--stdin", "12", "--label", "--duplicate-stdout-filters", "a,,b,c",
        "--duplicate_stderr_filters=d", "train.py");
    ck_assert(o->redirects[0] == 3 && o->redirects[12] == 3 && o->redirects[13] == 0);
    ck_assert(o->tees[0] == 1 && o->tees[1] == 0 && o->tees[12] == 2);
    ck_assert(!o->hidden[0] && o->hidden[1] && !o->hidden[12]);
    ck_assert_str_eq(o->log_dir, "logs");
    ck_assert_str_eq(o->label, OUTPUT_LABEL_DEFAULT);
    ck_assert_str_eq(o->filters[0][0], "a,b");
    ck_assert_str_eq(o->filters[0][1], "c");
    ck_assert_str_eq(o->filters[1][0], "d");
    ck_assert_int_eq(o->stdin_rank, 12);
    WITH_ENV("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=<${rank}>", "PET_TEE=3");
    JOB("ddprun", "--label=", "--stdin=none", "--log-dir=/dev/null", "train.py");
    ck_assert_str_eq(o->label, "");
    ck_assert_str_eq(o->line_prefix, "<${rank}>");
    ck_assert_int_eq(o->stdin_rank, -1);
    ck_assert_int_eq(o->tees[0], 3);
    ck_assert(o->log_dir_null);
    JOB("torchrun", "--log-line-prefix-template", "", "train.py");
    ck_assert_str_eq(o->line_prefix, "<${rank}>");
    JOB("torchrun", "--log_line_prefix_template=${hostname} ", "train.py");
    ck_assert_str_eq(o->line_prefix, "${hostname} ");
    WITH_ENV("PET_LOG_LINE_PREFIX_TEMPLATE=>");
    JOB("ddprun", "train.py");
    ck_assert_str_eq(o->line_prefix, ">");
}
END_TEST

START_TEST(reports_of_the_job_have_their_options)
{
    JOB("ddprun", "train.py");
    ck_assert_ptr_null(spec.events);
    ck_assert_ptr_null(spec.report);
    ck_assert_ptr_null(spec.failure_dump);
    ck_assert(!spec.dry_run);
    JOB("ddprun", "--events", "e.jsonl", "--report=r.json", "--event-log-handler=console",
        "--dry-run", "--logs-specs=default", "--on-failure-dump", "d", "train.py");
    ck_assert_str_eq(spec.failure_dump, "d");
    ck_assert_str_eq(spec.events, "e.jsonl");
    ck_assert_str_eq(spec.report, "r.json");
    ck_assert(spec.dry_run);
    JOB("ddprun", "--event-log-handler=console", "train.py");
    ck_assert(spec.event_log);
    ck_assert_ptr_null(spec.events);
    JOB("ddprun", "--event-log-handler=null", "train.py");
    ck_assert(!spec.event_log);
}
END_TEST

START_TEST(pages_are_served_at_the_loopback_unless_an_address_is_given)
{
    JOB("ddprun", "train.py");
    ck_assert_ptr_null(spec.http);
    JOB("ddprun", "--http", "8080", "train.py");
    ck_assert_str_eq(spec.http->host, "localhost");
    ck_assert_uint_eq(spec.http->port, 8080);
    ck_assert(!spec.http->is_weak);
    JOB("ddprun", "--http=0.0.0.0:0", "train.py");
    ck_assert_str_eq(spec.http->host, "0.0.0.0");
    ck_assert_uint_eq(spec.http->port, 0);
    JOB("ddprun", "--http=[::1]:65535", "train.py");
    ck_assert_str_eq(spec.http->host, "::1");
    ck_assert_uint_eq(spec.http->port, 65535);
    WITH_ENV("TORCHELASTIC_HEALTH_CHECK_PORT=9000");
    JOB("ddprun", "train.py");
    ck_assert_uint_eq(spec.http->port, 9000);
    ck_assert(spec.http->is_weak);
    JOB("ddprun", "--http=8080", "train.py");
    ck_assert_uint_eq(spec.http->port, 8080);
}
END_TEST

START_TEST(clients_may_call_the_pages_by_further_names)
{
    JOB("ddprun", "--http", "8080", "train.py");
    ck_assert_ptr_null(spec.http_hosts);
    JOB("ddprun", "--http-host=train.example.org,gate_1", "--http=80", "train.py");
    ck_assert_str_eq(spec.http_hosts, "train.example.org,gate_1");
    JOB("ddprun", "--http=80", "--http-host", "*", "train.py");
    ck_assert_str_eq(spec.http_hosts, "*");
    ck_assert_int_eq(PARSE("ddprun", "--http=80", "--http-host", "a:80", "train.py"), -EINVAL);
    ck_assert_msg(strstr(err.text, "'a:80' for --http-host") != NULL, "%s", err.text);
    job_spec_fini(&spec);
    JOB("ddprun", "--http-host", "a", "train.py"); /* of the coordinator's pages */
    ck_assert_ptr_null(spec.http);
    ck_assert_str_eq(spec.http_hosts, "a");
}
END_TEST

START_TEST(progress_of_a_train_job_is_relative_to_a_number_of_steps)
{
    static const char *const bad[] = {"0", "-1", "x", "", "9223372036854775808"};
    JOB("ddprun", "train.py");
    ck_assert_uint_eq(spec.trainjob_steps, 0);
    JOB("ddprun", "--trainjob-progress=9223372036854775807", "train.py");
    ck_assert_uint_eq(spec.trainjob_steps, INT64_MAX);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_int_eq(PARSE("ddprun", "--trainjob-progress", bad[i], "train.py"), -EINVAL);
}
END_TEST

START_TEST(an_address_of_pages_is_a_number)
{
    static const char *const bad[] = {
        "",
        ":",
        ":80",
        "x",
        "65536",
        "-1",
        "80x",
        "name:80",
        "1.2.3:80",
        "[]:80",
        "[::1]",
        "1.2.3.4",
        "1:2:",
        "[::1:80",
        "8080:",
        "0.0.0.0:",
        "0.0.0.0:-1",
        "[1.2.3.4.5]:1",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(PARSE("ddprun", "--http", bad[i], "train.py") < 0, "%s", bad[i]);
        ck_assert_msg(strstr(err.text, "--http") != NULL, "%s", err.text);
        job_spec_fini(&spec);
    }
}
END_TEST

START_TEST(the_worker_server_is_chosen)
{
    JOB("ddprun", "train.py");
    ck_assert_int_eq(spec.worker_server, WORKER_SERVER_AUTO);
    JOB("ddprun", "--worker-server", "on", "train.py");
    ck_assert_int_eq(spec.worker_server, WORKER_SERVER_ON);
    JOB("ddprun", "--worker-server=off", "--warm", "train.py");
    ck_assert_int_eq(spec.worker_server, WORKER_SERVER_OFF);
    ck_assert_int_eq(PARSE("ddprun", "--worker-server=yes", "train.py"), -EINVAL);
    job_spec_fini(&spec);
    ck_assert_int_eq(PARSE("ddprun", "--worker-server=on", "--warm", "train.py"), -EINVAL);
    ck_assert_str_eq(err.text, "--worker-server on and --warm cannot be used together");
    job_spec_fini(&spec);
}
END_TEST

TCase *cli_output_cases(void)
{
    TCase *t = tcase_create("output");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, output_goes_to_its_destination);
    tcase_add_test(t, reports_of_the_job_have_their_options);
    tcase_add_test(t, pages_are_served_at_the_loopback_unless_an_address_is_given);
    tcase_add_test(t, clients_may_call_the_pages_by_further_names);
    tcase_add_test(t, progress_of_a_train_job_is_relative_to_a_number_of_steps);
    tcase_add_test(t, an_address_of_pages_is_a_number);
    tcase_add_test(t, the_worker_server_is_chosen);
    return t;
}
