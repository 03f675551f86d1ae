/* check_run.h - runs another program for its output, with a time limit. */
#ifndef DDP_CTL_PROBE_CHECK_RUN_H
#define DDP_CTL_PROBE_CHECK_RUN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct co_error;

/* With nothing on standard input. A program that takes too long is killed.
 *
 * words     NULL-terminated; the first is searched in PATH
 * text      what it wrote, to standard output and standard error; cut to n - 1 bytes, always a
 *           string; what follows is read and dropped
 * returns   0: its exit status was 0
 *           -ENOENT      there is no such program
 *           -ETIMEDOUT   it took too long
 *           -EIO         it failed: the text has the reason, and its own last line
 *           -errno */
int check_run(const char *const *words, uint64_t timeout_ms, char *text, size_t n,
              struct co_error *err);

/* What becomes readable at a child's end. returns a descriptor, which is the caller's; -errno */
int check_run_watch(pid_t pid);

/* Wait for a child's end, and reap it.
 *
 * returns   0 ret_status is as waitpid() has it; -ETIMEDOUT: it runs on; -errno */
int check_run_await(pid_t pid, uint64_t deadline_ms, int *ret_status);

#endif
