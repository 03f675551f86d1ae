/* domain_rule.h - --domain: which text names the domain of this node, so that nodes with the same
 * text are close to each other.
 *
 *     gpu          the NVLink domain of its GPUs, as NVML has it: the caller asks for it
 *     name:REGEX   what a POSIX extended regular expression finds in the node's name: its first
 *                  group, or without one all that it matches
 *     env:NAME     the value of an environment variable
 *     LABEL        this text itself; without a ':' */
#ifndef DDP_LAUNCHER_PLATFORM_DOMAIN_RULE_H
#define DDP_LAUNCHER_PLATFORM_DOMAIN_RULE_H

#include <stdbool.h>

struct co_error;

/* by        the option, for messages
 * returns   0; -EINVAL */
int domain_rule_check(const char *by, const char *rule, struct co_error *err);

bool domain_rule_is_gpu(const char *rule);

/* The domain by a rule that is not gpu and that domain_rule_check() accepts.
 *
 * ret       of MESSAGE_DOMAIN_BYTES
 * returns   0; -ENOENT: the name does not match, or the variable is not set; -EINVAL: what was
 *           found cannot be a domain: empty, long, or with bytes other than printable ASCII */
int domain_rule_apply(const char *rule, const char *node_name, char *ret, struct co_error *err);

#endif
