/* store_process.h - the real store, run as a program (STORE_SERVER) for the ranks of a test. */
#ifndef DDP_TESTS_UNIT_WORKER_RUNTIME_STORE_PROCESS_H
#define DDP_TESTS_UNIT_WORKER_RUNTIME_STORE_PROCESS_H

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct store_process {
    pid_t pid; /* 0: it does not run */
    int in;    /* it ends when this is closed */
};

/* At any free port. It sets MASTER_ADDR and MASTER_PORT. */
static inline void store_start_at(struct store_process *s, const char *address)
{
    int in[2], out[2];
    char port[16];
    const char *program = getenv("STORE_SERVER");
    ck_assert_msg(program != NULL, "STORE_SERVER names the store");
    ck_assert(pipe(in) == 0 && pipe(out) == 0);
    s->pid = fork();
    if (s->pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        close(in[1]);
        execl(program, program, "0", address, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    s->in = in[1];
    FILE *says = fdopen(out[0], "r");
    ck_assert_ptr_nonnull(fgets(port, sizeof port, says));
    port[strcspn(port, "\n")] = '\0';
    fclose(says);
    setenv("MASTER_ADDR", address, 1);
    setenv("MASTER_PORT", port, 1);
}

static inline void store_start(struct store_process *s)
{
    store_start_at(s, "127.0.0.1");
}

/* Once more is fine. */
static inline void store_stop(struct store_process *s)
{
    if (s->pid == 0)
        return;
    kill(s->pid, SIGKILL);
    ck_assert_int_eq(waitpid(s->pid, NULL, 0), s->pid);
    close(s->in);
    s->pid = 0;
}

#endif
