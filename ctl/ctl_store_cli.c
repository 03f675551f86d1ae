#include "ctl_store_cli.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <string.h>

enum {
    DEFAULT_PORT = 29400, /* where torchrun looks for a c10d endpoint that names none */
    DEFAULT_TIMEOUT_MS = 10000,
    DEFAULT_WAIT_MS = 300000, /* torch's own */
};

/* The options that were read so far. */
struct draft {
    struct ctl_store_task task;
    bool has_endpoint, has_timeout;
};

static int read_option(struct draft *d, const struct co_option_found *found, struct co_error *err)
{
    struct ctl_store_task *task = &d->task;
    switch ((enum ctl_store_option)found->option->id) {
    case CTL_STORE_OPTION_ENDPOINT:
        d->has_endpoint = true;
        task->port = DEFAULT_PORT;
        return co_parse_endpoint(found->spelled, found->value, task->host, sizeof task->host,
                                 &task->port, err);
    case CTL_STORE_OPTION_TIMEOUT:
        d->has_timeout = true;
        return co_parse_duration_ms(found->spelled, found->value, &task->timeout_ms, err);
    case CTL_STORE_OPTION_RAW:
        task->raw = true;
        return 0;
    case CTL_STORE_OPTION_PREFIX:
        task->is_prefix = true;
        return 0;
    case CTL_STORE_OPTION_FULL:
        task->is_full = true;
        return 0;
    case CTL_STORE_OPTION_HELP:
        task->is_help = true;
        return 0;
    }
    return 0;
}

/* Read the options after argv[0].
 * returns   the index of the first word that is not an option, or -EINVAL */
static int read_options(struct draft *d, int argc, char **argv, struct co_error *err)
{
    struct co_option_walk walk;
    struct co_option_found found;
    int rc;
    co_options_start(&walk, ctl_store_table, argc, argv);
    while ((rc = co_options_next(&walk, &found, err)) > 0 && !d->task.is_help)
        if (read_option(d, &found, err) < 0)
            return -EINVAL;
    return rc < 0 ? -EINVAL : walk.at;
}

static int find_action(const char *name, enum ctl_store_action *ret_action, struct co_error *err)
{
    for (int i = 0; i < CTL_STORE_N_ACTIONS; i++) {
        if (strcmp(name, ctl_store_forms[i].name) == 0) {
            *ret_action = (enum ctl_store_action)i;
            return 0;
        }
    }
    return co_fail(err, -EINVAL, "store: unknown action '%.60s'; try ddpctl store --help", name);
}

static int set_endpoint(struct draft *d, const struct ctl_store_env *env, struct co_error *err)
{
    struct ctl_store_task *task = &d->task;
    if (d->has_endpoint)
        return 0;
    bool has_env = env->master_addr != NULL && env->master_port != NULL;
    const char *host = has_env ? env->master_addr : "127.0.0.1";
    int64_t port = DEFAULT_PORT;
    if (has_env && co_parse_int("MASTER_PORT", env->master_port, 1, UINT16_MAX, &port, err) < 0)
        return -EINVAL;
    if (*host == '\0' || strlen(host) >= sizeof task->host)
        return co_fail(err, -EINVAL, "invalid value '%.200s' for MASTER_ADDR: expected a host",
                       host);
    snprintf(task->host, sizeof task->host, "%s", host);
    task->port = (uint16_t)port;
    return 0;
}

static int set_operands(struct ctl_store_task *task, int n, char **operands, struct co_error *err)
{
    const struct ctl_form *form = &ctl_store_forms[task->action];
    if (n < form->n_least || n > form->n_most)
        return co_fail(err, -EINVAL, "store %s: %s arguments; usage: ddpctl store %s %s",
                       form->name, n < form->n_least ? "missing" : "too many", form->name,
                       form->operands);
    if (task->is_prefix && task->action != CTL_STORE_DELETE)
        return co_fail(err, -EINVAL, "store %s: --prefix can be used with delete only", form->name);
    if (task->is_prefix && n > 1)
        return co_fail(err, -EINVAL, "store delete: --prefix takes one KEY");
    if (task->is_full && task->action != CTL_STORE_DUMP)
        return co_fail(err, -EINVAL, "store %s: --full can be used with dump only", form->name);
    task->keys = operands;
    task->n_keys = n;
    task->delta = 1;
    if (task->action == CTL_STORE_SET) {
        task->n_keys = 1;
        task->value = strcmp(operands[1], "-") == 0 ? NULL : operands[1];
    } else if (task->action == CTL_STORE_ADD && n == 2) {
        task->n_keys = 1;
        if (co_parse_int("N", operands[1], INT64_MIN, INT64_MAX, &task->delta, err) < 0)
            return -EINVAL;
    }
    return 0;
}

int ctl_store_cli_parse(int argc, char **argv, const struct ctl_store_env *env,
                        struct ctl_store_task *ret_task, struct co_error *err)
{
    struct draft d = {0};
    int at = read_options(&d, argc, argv, err);
    if (at >= 0 && !d.task.is_help) {
        if (at == argc)
            return co_fail(err, -EINVAL, "store: no action given; try ddpctl store --help");
        if (find_action(argv[at], &d.task.action, err) < 0)
            return -EINVAL;
        argv += at;
        argc -= at;
        at = read_options(&d, argc, argv, err); /* once more: options after the action are common */
    }
    if (at < 0)
        return -EINVAL;
    if (!d.task.is_help) {
        if (!d.has_timeout)
            d.task.timeout_ms =
                d.task.action == CTL_STORE_WAIT ? DEFAULT_WAIT_MS : DEFAULT_TIMEOUT_MS;
        if (set_endpoint(&d, env, err) < 0 || set_operands(&d.task, argc - at, argv + at, err) < 0)
            return -EINVAL;
    }
    *ret_task = d.task;
    return 0;
}

void ctl_store_cli_print_help(FILE *out)
{
    fputs("Usage: ddpctl store ACTION [OPTION]... [OPERAND]...\n"
          "Inspect and change the keys of a store that speaks PyTorch's TCPStore protocol\n"
          "(torch 2.2 and later).\n"
          "\n"
          "Actions:\n",
          out);
    for (int i = 0; i < CTL_STORE_N_ACTIONS; i++) {
        const struct ctl_form *form = &ctl_store_forms[i];
        fprintf(out, "  %-6s %-15s  %s\n", form->name, form->operands, form->help);
    }
    fputs("\nOptions:\n", out);
    co_options_print_help(ctl_store_table, out);
    fputs("\n"
          "Exit status: 0 success; 1 the key does not exist, or did not appear in time; 2 wrong\n"
          "usage; 69 no store answers; 70 out of memory; 74 stdin or stdout failed. More in\n"
          "ddpctl(1).\n",
          out);
}
