#include "pmi_bootstrap.h"

#include "launcher/platform/host_env.h"

#include "common/error.h"
#include "common/parse.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SIZE_MOST 65536

static int read_variable(const struct host_env *w, const char *name, int64_t min, int64_t max,
                         int64_t *ret, struct co_error *err)
{
    const char *text = host_env_get(w, name);
    return text == NULL
               ? co_fail(
                     err, -EINVAL,
                     "PMI_FD is set, but %s is not; start ddprun with mpiexec or srun --mpi=pmi2",
                     name)
               : co_parse_int(name, text, min, max, ret, err);
}

int pmi_bootstrap_look(const struct host_env *world, struct pmi_place *ret_place,
                       struct co_error *err)
{
    int64_t fd, size, rank, local = 1;
    if (host_env_get(world, "PMI_FD") == NULL)
        return 0;
    int rc = read_variable(world, "PMI_FD", 0, INT32_MAX, &fd, err)
        ?: read_variable(world, "PMI_SIZE", 1, SIZE_MOST, &size, err)
        ?: read_variable(world, "PMI_RANK", 0, SIZE_MOST - 1, &rank, err);
    if (rc == 0 && host_env_get(world, "MPI_LOCALNRANKS") != NULL)
        rc = read_variable(world, "MPI_LOCALNRANKS", 1, SIZE_MOST, &local, err);
    if (rc < 0)
        return err != NULL ? err->code = -EINVAL : -EINVAL;
    if (rank >= size)
        return co_fail(err, -EINVAL, "PMI_RANK=%d contradicts PMI_SIZE=%d", (int)rank, (int)size);
    if (size == 1)
        return 0;
    if (local > 1)
        return co_fail(err, -EINVAL,
                       "%d ddpruns were started on this node, but one starts all ranks of a node; "
                       "use mpiexec -ppn 1",
                       (int)local);
    *ret_place = (struct pmi_place){.fd = (int)fd, .rank = (uint32_t)rank, .size = (uint32_t)size};
    return 1;
}

void pmi_bootstrap_print(const struct pmi_bootstrap_meeting *m, char *to, size_t n)
{
    int used = snprintf(to, n, "%u;%s;%s;", m->port, m->token, m->run_id);
    size_t at = (size_t)used < n ? (size_t)used : n;
    for (size_t i = 0; i < m->n_addresses; i++) {
        used = snprintf(to + at, n - at, "%s%s", i > 0 ? "," : "", m->address[i]);
        if ((size_t)used >= n - at) {
            to[at] = '\0';
            return;
        }
        at += (size_t)used;
    }
}

static bool is_made_of(const char *text, int (*belongs)(int c), size_t most)
{
    size_t n = 0;
    while (text[n] != '\0' && (belongs((unsigned char)text[n]) || text[n] == '-'))
        n++;
    return text[n] == '\0' && n > 0 && n <= most;
}

static bool read_addresses(char *list, struct pmi_bootstrap_meeting *m)
{
    uint8_t bytes[16];
    for (char *a; (a = strsep(&list, ",")) != NULL;) {
        if (m->n_addresses == PMI_BOOTSTRAP_ADDRESSES_MAX ||
            (inet_pton(AF_INET, a, bytes) != 1 && inet_pton(AF_INET6, a, bytes) != 1))
            return false;
        snprintf(m->address[m->n_addresses++], INET6_ADDRSTRLEN, "%s", a);
    }
    return true;
}

int pmi_bootstrap_read(char *text, struct pmi_bootstrap_meeting *ret, struct co_error *err)
{
    struct pmi_bootstrap_meeting m = {0};
    char *rest = text;
    int64_t port;
    if (text[0] == '!')
        return co_fail(err, -EIO, "rendezvous with node 0 failed: %.400s", text + 1);
    const char *number = strsep(&rest, ";"), *token = strsep(&rest, ";");
    const char *run_id = strsep(&rest, ";");
    if (rest == NULL || co_parse_int("port", number, 1, UINT16_MAX, &port, NULL) < 0 ||
        !is_made_of(token, isxdigit, sizeof m.token - 1) ||
        !is_made_of(run_id, isalnum, sizeof m.run_id - 1) || !read_addresses(rest, &m))
        return co_fail(err, -EPROTO, "node 0 published an invalid address through PMI");
    m.port = (uint16_t)port;
    snprintf(m.token, sizeof m.token, "%s", token);
    snprintf(m.run_id, sizeof m.run_id, "%s", run_id);
    *ret = m;
    return 0;
}
