/* The command line's part about failures, restarts, signals and the end of the job. */
#include "one_command_line.h"

#include <errno.h>
#include <signal.h>

START_TEST(states_may_be_kept_in_memory)
{
    JOB("ddprun", "train.py");
    ck_assert_uint_eq(spec.memory_checkpoint_bytes, 0);
    JOB("ddprun", "--memory-checkpoints", "2G", "train.py");
    ck_assert_uint_eq(spec.memory_checkpoint_bytes, (uint64_t)2 << 30);
    JOB("torchrun", "--memory-checkpoints=4096", "train.py");
    ck_assert_uint_eq(spec.memory_checkpoint_bytes, 4096);
    ck_assert_int_eq(PARSE("ddprun", "--memory-checkpoints", "4095", "train.py"), -EINVAL);
    ck_assert_str_eq(err.text,
                     "invalid value '4095' for --memory-checkpoints: expected a size from "
                     "4K to 1T");
}
END_TEST

START_TEST(restarts_have_a_number_a_window_and_exceptions)
{
    JOB("ddprun", "train.py");
    ck_assert_int_eq(spec.max_restarts, 0);
    JOB("ddprun", "--max-restarts", "3", "train.py");
    ck_assert_int_eq(spec.max_restarts, 3);
    ck_assert_uint_eq(spec.restart_window_ms, 0);
    JOB("ddprun", "--max-restarts=5/10m", "--no-restart-on", "1,130-132,255", "train.py");
    ck_assert_int_eq(spec.max_restarts, 5);
    ck_assert_uint_eq(spec.restart_window_ms, 600000);
    for (int code = 0; code < 256; code++)
        ck_assert_int_eq(spec.no_restart_on[code],
                         code == 1 || (code >= 130 && code <= 132) || code == 255);
}
END_TEST

START_TEST(a_failed_rank_is_replaced_by_default)
{
    JOB("ddprun", "train.py");
    ck_assert(!job_spec_recovers(&spec)); /* there is no restart at all */
    JOB("ddprun", "--max-restarts", "3", "train.py");
    ck_assert_int_eq(spec.on_failure, FAILURE_REPLACES);
    ck_assert_uint_eq(spec.recovery_ms, 60000);
    ck_assert(job_spec_recovers(&spec));
    JOB("ddprun", "--restart-after-progress", "--recovery-timeout=1.5s", "train.py");
    ck_assert_uint_eq(spec.recovery_ms, 1500);
    ck_assert(job_spec_recovers(&spec));
    JOB("ddprun", "--max-restarts", "3", "--on-failure", "restart", "train.py");
    ck_assert_int_eq(spec.on_failure, FAILURE_RESTARTS);
    ck_assert_int_eq(spec.max_restarts, 3);
    ck_assert(!job_spec_recovers(&spec));
    JOB("ddprun", "--max-restarts", "3", "--on-failure", "shrink", "train.py");
    ck_assert_int_eq(spec.on_failure, FAILURE_SHRINKS);
    ck_assert(job_spec_recovers(&spec));
    JOB("torchrun", "--max-restarts", "3", "train.py");
    ck_assert_int_eq(spec.on_failure, FAILURE_RESTARTS);
    JOB("ddprun", "--nnodes=2", "--max-restarts=1", "--rdzv-id=a", "--rdzv-endpoint=h:1",
        "train.py");
    ck_assert(job_spec_recovers(&spec));
    JOB("ddprun", "--nnodes=1:2", "--rdzv-id=a", "--rdzv-endpoint=h:1", "train.py");
    ck_assert(job_spec_recovers(&spec)); /* nodes may come and go */
    JOB("ddprun", "--nnodes=2", "--rdzv-id=a", "--rdzv-endpoint=h:1", "train.py");
    ck_assert(!job_spec_recovers(&spec));
    JOB("ddprun", "--max-restarts=3", "--restart-after-progress", "--on-failure=abort", "train.py");
    ck_assert_int_eq(spec.on_failure, FAILURE_ABORTS);
    ck_assert_int_eq(spec.max_restarts, 0);
    ck_assert(!spec.restart_after_progress);
}
END_TEST

START_TEST(progress_makes_restarts_free_on_request)
{
    JOB("ddprun", "train.py");
    ck_assert(!spec.restart_after_progress);
    JOB("ddprun", "--restart-after-progress", "train.py");
    ck_assert(spec.restart_after_progress);
    ck_assert_uint_eq(spec.output_after_ms, 60000);
    ck_assert_str_eq(spec.shown, "train.py"); /* only '=' passes a value */
    JOB("ddprun", "--restart-after-progress=250ms", "train.py");
    ck_assert_uint_eq(spec.output_after_ms, 250);
    JOB("ddprun", "--restart_after_progress=0", "train.py");
    ck_assert(spec.restart_after_progress);
    ck_assert_uint_eq(spec.output_after_ms, 0);
}
END_TEST

START_TEST(python_ranks_may_be_forked)
{
    JOB("ddprun", "train.py");
    ck_assert_int_eq(spec.warm, WARM_NEVER);
    ck_assert(spec.is_python);
    JOB("ddprun", "--warm", "train.py");
    ck_assert_int_eq(spec.warm, WARM_RESTARTS);
    ck_assert_str_eq(spec.shown, "train.py");
    JOB("ddprun", "--warm=start", "-m", "train");
    ck_assert_int_eq(spec.warm, WARM_START);
    ck_assert(spec.is_python);
    JOB("ddprun", "--warm=restarts", "./program");
    ck_assert_int_eq(spec.warm, WARM_RESTARTS);
    ck_assert(!spec.is_python);
}
END_TEST

#define BIT(sig) (UINT64_C(1) << (sig))
#define USUAL    (BIT(SIGTERM) | BIT(SIGINT) | BIT(SIGHUP) | BIT(SIGQUIT))

START_TEST(signals_that_end_the_job_can_be_added)
{
    JOB("ddprun", "train.py");
    ck_assert_uint_eq(spec.stop_signals, USUAL);
    ck_assert_str_eq(spec.signals_to_handle, "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
    ck_assert_int_eq(spec.signal_scope, SCOPE_PROCESS);
    ck_assert_ptr_null(spec.notes);
    JOB("ddprun", "--signals-to-handle=SIGUSR1,SIGXCPU,SIGIO", "--signal-scope", "group",
        "train.py");
    ck_assert_uint_eq(spec.stop_signals, USUAL | BIT(SIGUSR1) | BIT(SIGXCPU) | BIT(SIGIO));
    ck_assert_str_eq(spec.signals_to_handle, "SIGUSR1,SIGXCPU,SIGIO");
    ck_assert_int_eq(spec.signal_scope, SCOPE_GROUP);
    ck_assert_ptr_null(spec.notes);
    JOB("ddprun", "--signals-to-handle=USR1,sigusr2,Io", "train.py");
    ck_assert_uint_eq(spec.stop_signals, USUAL | BIT(SIGUSR1) | BIT(SIGUSR2) | BIT(SIGIO));
    ck_assert_str_eq(spec.signals_to_handle, "SIGUSR1,SIGUSR2,SIGIO");
    ck_assert_ptr_null(spec.notes);
    static const char *const none[] = {"SIGNONE", "SIG",        "USR",  "USR11",
                                       "10",      "SIGSIGUSR1", " USR1"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        ck_assert_int_eq(PARSE("ddprun", "--signals-to-handle", none[i], "train.py"), -EINVAL);
        ck_assert_msg(strstr(err.text, "expected the name of a signal, such as SIGUSR1 or USR1") !=
                          NULL,
                      "'%s': %s", none[i], err.text);
    }
    ck_assert_int_eq(PARSE("ddprun", "--signals-to-handle=USR1,kill", "train.py"), -EINVAL);
    ck_assert_str_eq(err.text,
                     "invalid value 'kill' for --signals-to-handle: expected a signal that "
                     "a process can handle, such as SIGUSR1");
    JOB("torchrun", "--signals-to-handle=,SIGNONE,SIGKILL,usr2", "train.py");
    ck_assert_uint_eq(spec.stop_signals, USUAL | BIT(SIGUSR2));
    ck_assert_str_eq(spec.signals_to_handle, ",SIGNONE,SIGKILL,SIGUSR2");
    ck_assert_str_eq(spec.notes,
                     "--signals-to-handle: unknown signal 'SIGNONE' ignored\n--signals-to-handle: "
                     "signal 'SIGKILL' cannot be handled; ignored\n");
}
END_TEST

START_TEST(the_shutdown_can_be_timed)
{
    JOB("ddprun", "--timeout", "2h", "train.py");
    ck_assert_uint_eq(spec.timeout_ms, 7200000);
    WITH_ENV("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7");
    JOB("ddprun", "train.py");
    ck_assert_uint_eq(spec.timeout_ms, 0);
    ck_assert_uint_eq(spec.grace_ms, 7000);
    ck_assert_uint_eq(spec.failure_grace_ms, 7000);
    WITH_ENV("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7", "PET_SHUTDOWN_TIMEOUT=8");
    JOB("ddprun", "train.py");
    ck_assert_uint_eq(spec.grace_ms, 8000);
    JOB("ddprun", "--shutdown-timeout=9", "train.py");
    ck_assert_uint_eq(spec.grace_ms, 9000);
    WITH_ENV("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=");
    JOB("ddprun", "train.py");
    ck_assert_uint_eq(spec.grace_ms, 30000);
}
END_TEST

START_TEST(generations_without_progress_are_limited)
{
    static const char *const bad[] = {"", "0", "-1", "x", "3/10m", "1000001"};
    JOB("ddprun", "--max-restarts=3", "train.py");
    ck_assert_uint_eq(spec.no_progress, 0);
    JOB("ddprun", "--max-restarts=3", "--no-progress", "3", "train.py");
    ck_assert_uint_eq(spec.no_progress, 3);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(PARSE("ddprun", "--max-restarts=3", "--no-progress", bad[i], "train.py") < 0,
                      "%s", bad[i]);
        ck_assert_msg(strstr(err.text, "--no-progress") != NULL, "%s", err.text);
        job_spec_fini(&spec);
    }
    ck_assert_int_eq(PARSE("ddprun", "--max-restarts=3", "--no-progress=4", "train.py"), -EINVAL);
    ck_assert_str_eq(err.text, "--no-progress 4 requires --max-restarts 4 or more: otherwise the "
                               "restarts are used up first");
    job_spec_fini(&spec);
}
END_TEST

START_TEST(health_checks_have_a_command_a_limit_and_a_list)
{
    JOB("ddprun", "train.py");
    ck_assert(!job_spec_checks(&spec));
    JOB("ddprun", "--health-check", "exit 1", "train.py");
    ck_assert(job_spec_checks(&spec));
    ck_assert_str_eq(spec.health.command, "exit 1");
    ck_assert_uint_eq(spec.health.timeout_ms, 60000);
    ck_assert(spec.health.builtin.gpu && spec.health.builtin.n_disks == 1 &&
              !spec.health.builtin.memory);
    JOB("ddprun", "--health-check=x", "--health-builtin=none", "--health-timeout", "5s",
        "train.py");
    ck_assert(!health_checks_any(&spec.health.builtin));
    ck_assert_uint_eq(spec.health.timeout_ms, 5000);
    JOB("ddprun", "--health-builtin", "memory=1G", "train.py");
    ck_assert(job_spec_checks(&spec) && spec.health.command == NULL);
    ck_assert_int_eq(PARSE("ddprun", "--health-check=", "train.py"), -EINVAL);
    ck_assert_int_eq(PARSE("ddprun", "--health-timeout=0", "train.py"), -EINVAL);
    ck_assert_int_eq(PARSE("ddprun", "--health-builtin=gpus", "train.py"), -EINVAL);
    ck_assert_str_eq(err.text,
                     "invalid value 'gpus' for --health-builtin: expected gpu, disk, memory, "
                     "clock, network, default, all, or none");
}
END_TEST

START_TEST(a_hang_timeout_is_a_time_or_learned)
{
    static const char *const bad[] = {"", "0", "-1", "x", "automatic", "5m,auto"};
    JOB("ddprun", "train.py");
    ck_assert_uint_eq(spec.hang_timeout_ms, 0);
    JOB("ddprun", "--hang-timeout", "5m", "train.py");
    ck_assert_uint_eq(spec.hang_timeout_ms, 300000);
    ck_assert(!spec.hang_learns);
    JOB("ddprun", "--hang-timeout=auto", "train.py");
    ck_assert_uint_eq(spec.hang_timeout_ms, 1800000);
    ck_assert(spec.hang_learns);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(PARSE("ddprun", "--hang-timeout", bad[i], "train.py") < 0, "%s", bad[i]);
        ck_assert_msg(strstr(err.text, "--hang-timeout") != NULL, "%s", err.text);
        job_spec_fini(&spec);
    }
}
END_TEST

START_TEST(torchruns_timers_and_limit_of_sleep_are_read)
{
    static const char *const bad[] = {"x", "5s", "nan", "inf", "1e9", "1000001"};
    char variable[96];
    JOB("ddprun", "train.py");
    ck_assert_ptr_null(spec.timer_file);
    ck_assert_uint_eq(spec.uninterruptible_ms, 0);
    WITH_ENV("TORCHELASTIC_ENABLE_FILE_TIMER=1", "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=2.5");
    JOB("ddprun", "train.py");
    ck_assert_str_eq(spec.timer_file, "");
    ck_assert_uint_eq(spec.uninterruptible_ms, 2500);
    WITH_ENV("TORCHELASTIC_ENABLE_FILE_TIMER=1", "TORCHELASTIC_TIMER_FILE=/tmp/timers");
    JOB("ddprun", "train.py");
    ck_assert_str_eq(spec.timer_file, "/tmp/timers");
    WITH_ENV("TORCHELASTIC_ENABLE_FILE_TIMER=true", "TORCHELASTIC_TIMER_FILE=/tmp/timers",
             "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=-1");
    JOB("ddprun", "train.py");
    ck_assert_ptr_null(spec.timer_file);
    ck_assert_uint_eq(spec.uninterruptible_ms, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(variable, sizeof variable, "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=%s",
                 bad[i]);
        WITH_ENV(variable);
        ck_assert_msg(PARSE("ddprun", "train.py") == -EINVAL, "%s", bad[i]);
        ck_assert_msg(strstr(err.text, "expected seconds, at most 1000000") != NULL, "%s",
                      err.text);
        job_spec_fini(&spec);
    }
}
END_TEST

TCase *cli_end_cases(void)
{
    TCase *t = tcase_create("end");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, states_may_be_kept_in_memory);
    tcase_add_test(t, health_checks_have_a_command_a_limit_and_a_list);
    tcase_add_test(t, restarts_have_a_number_a_window_and_exceptions);
    tcase_add_test(t, a_failed_rank_is_replaced_by_default);
    tcase_add_test(t, a_hang_timeout_is_a_time_or_learned);
    tcase_add_test(t, torchruns_timers_and_limit_of_sleep_are_read);
    tcase_add_test(t, progress_makes_restarts_free_on_request);
    tcase_add_test(t, generations_without_progress_are_limited);
    tcase_add_test(t, python_ranks_may_be_forked);
    tcase_add_test(t, signals_that_end_the_job_can_be_added);
    tcase_add_test(t, the_shutdown_can_be_timed);
    return t;
}
