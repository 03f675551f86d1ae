#include "domain.h"

#include "health_probe.h"
#include "launcher/platform/domain_rule.h"

#include "common/clock.h"
#include "common/error.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NVML_MS = 60000, LEAVES_MS = 1000, LOOK_AGAIN_MS = 10 };

/* returns 1 the facts; 0 the process has ended; -ETIMEDOUT */
static int await_facts(const struct health_probe *p, struct health_facts *ret)
{
    const uint64_t end_ms = co_now_ms() + NVML_MS;
    int rc = -EAGAIN;
    for (uint64_t now_ms; rc == -EAGAIN && (now_ms = co_now_ms()) < end_ms;) {
        struct pollfd fd = {.fd = p->sock, .events = POLLIN};
        if (poll(&fd, 1, (int)(end_ms - now_ms)) > 0)
            rc = health_probe_receive(p, ret);
    }
    return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

/* It ends when its socket is closed, unless the driver holds it. */
static void end_process(struct health_probe *p)
{
    const struct timespec pause = {.tv_nsec = LOOK_AGAIN_MS * 1000000};
    close(p->sock);
    p->sock = -1;
    for (int waited_ms = 0; p->pid > 0 && waited_ms < LEAVES_MS; waited_ms += LOOK_AGAIN_MS) {
        if (waitpid(p->pid, NULL, WNOHANG) != 0)
            p->pid = 0;
        else
            nanosleep(&pause, NULL);
    }
    health_probe_stop(p);
}

static int ask_nvml(const char *visible, char *ret, struct co_error *err)
{
    const struct health_checks nothing = {.gpu = false};
    const struct health_probe_opts opts = {.checks = &nothing,
                                           .root = "",
                                           .nvml = "libnvidia-ml.so.1",
                                           .visible = visible,
                                           .fabric = true};
    struct health_probe p = {.sock = -1};
    struct health_facts facts = {.n_gpus = 0};
    int rc = health_probe_start(&opts, &p, err);
    if (rc < 0)
        return rc;
    rc = health_probe_ask(&p, NULL, 0);
    if (rc == 0)
        rc = await_facts(&p, &facts);
    end_process(&p);
    if (rc != 1)
        return rc == -ETIMEDOUT
                   ? co_fail(err, rc,
                             "timed out after %d s waiting for NVML to find the NVLink "
                             "domain of this node (--domain gpu)",
                             NVML_MS / 1000)
                   : co_fail(err, -EPIPE, "the process that asks NVML has ended");
    if (facts.fabric[0] == '\0')
        return co_fail(err, -ENOENT,
                       "cannot find the NVLink domain of this node (--domain gpu): %s; use "
                       "--domain name:REGEX, env:NAME, or a label",
                       facts.fabric_trouble);
    strcpy(ret, facts.fabric);
    return 0;
}

int domain_find(const char *rule, const char *name, const char *visible, char *ret,
                struct co_error *err)
{
    return domain_rule_is_gpu(rule) ? ask_nvml(visible, ret, err)
                                    : domain_rule_apply(rule, name, ret, err);
}
