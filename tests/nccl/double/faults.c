#include "faults.h"

#include "double.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 32 };

static struct fault {
    enum fault_kind kind;
    unsigned at; /* 0: always */
    int value;
} faults[MOST];
static size_t n_faults;
static pthread_once_t is_read = PTHREAD_ONCE_INIT;
static atomic_uint counters[FAULT_N_COUNTERS];

static int number_of(const char *variable)
{
    const char *text = getenv(variable);
    return text != NULL ? atoi(text) : 0;
}

/* Skip an optional "r1g0:". returns the text after it; NULL if it names another process */
static const char *skip_process(const char *text)
{
    int rank, generation, length = 0;
    if (sscanf(text, "r%dg%d:%n", &rank, &generation, &length) < 2 || length == 0)
        return text;
    const bool is_own = rank == number_of("RANK") && generation == number_of("DDP_GENERATION");
    return is_own ? text + length : NULL;
}

static void read_one(const char *text)
{
    static const char *const names[FAULT_N_KINDS] = {
        "kill",        "async",         "stall",           "cuda",         "slow_init",
        "hang_init",   "fail_init",     "usage_init",      "kill_init",    "abort_error",
        "abort_hang",  "revoke_error",  "revoke_hang",     "revoke_graph", "no_memory",
        "no_register", "register_hang", "deregister_hang", "lazy",         "hang_call"};
    char name[32];
    struct fault f = {0};
    const char *own = skip_process(text);
    if (own == NULL)
        return;
    const int n = sscanf(own, "%31[a-z_]@%u=%d", name, &f.at, &f.value);
    for (int k = 0; n >= 1 && k < FAULT_N_KINDS; k++)
        if (strcmp(name, names[k]) == 0 && n_faults < MOST) {
            f.kind = (enum fault_kind)k;
            faults[n_faults++] = f;
            return;
        }
    double_report("'%s' is no fault", own);
}

static void read_all(void)
{
    const char *text = getenv("NCCL_DOUBLE_FAULTS");
    char *copy = strdup(text != NULL ? text : ""), *rest = NULL;
    for (char *one = strtok_r(copy, ";", &rest); one != NULL; one = strtok_r(NULL, ";", &rest))
        read_one(one);
    free(copy);
}

unsigned fault_count(enum fault_counter counter)
{
    return atomic_fetch_add(&counters[counter], 1) + 1;
}

bool fault_is(enum fault_kind kind, unsigned n, int *ret_value)
{
    pthread_once(&is_read, read_all);
    for (size_t i = 0; i < n_faults; i++)
        if (faults[i].kind == kind && (faults[i].at == n || faults[i].at == 0)) {
            if (ret_value != NULL)
                *ret_value = faults[i].value;
            return true;
        }
    return false;
}
