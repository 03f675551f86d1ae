/* domain.h - the domain of this node, for --segment: by --domain (domain_rule.h), or from NVML.
 *
 * NVML is asked by a process of its own, for a minute at most. A node without a domain could never
 * take part, so that is an error. */
#ifndef DDP_LAUNCHER_HEALTH_DOMAIN_H
#define DDP_LAUNCHER_HEALTH_DOMAIN_H

struct co_error;

/* Blocks; for a process with one thread.
 *
 * rule      that domain_rule_check() accepts
 * name      this node's
 * visible   the GPUs of the job, as in nvml.h
 * ret       of MESSAGE_DOMAIN_BYTES
 * returns   0; -ENOENT: the node has no domain; -EINVAL: what is found cannot be one; -ETIMEDOUT;
 *           -EPIPE: the process that asks NVML has ended; -errno */
int domain_find(const char *rule, const char *name, const char *visible, char *ret,
                struct co_error *err);

#endif
