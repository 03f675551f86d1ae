/* The resources of one generation of ranks. generation_open() makes it before the ranks start: the
 * shared memory's broker, the sockets by which ranks are asked to save, and the store, if ddprun
 * serves it and this node is alone; with several nodes, one of them opens the store by
 * generation_open_store(), when the coordinator orders it. generation_renew() makes the next one
 * whole; generation_renew_ranks() replaces what belongs to ranks, and generation_recover() only the
 * memory, for ranks that live on. Read generation_open() first.
 *
 * Invariant: a new part is complete before it replaces the old one, so that a failure leaves what
 * there was. The exception is a store with a fixed port, which must be closed first.
 */
#include "generation.h"

#include "checkpoint_request.h"
#include "launcher/job/job_spec.h"
#include "listen.h"
#include "node_memory.h"
#include "progress_pipes.h"
#include "relay_listener.h"

#include "common/error.h"
#include "common/hash.h"
#include "common/process.h"
#include "common/scope.h"
#include "rendezvous/net/allow.h"
#include "rendezvous/relays/relay_port.h"
#include "rendezvous/server/server.h"
#include "segments/rank_status.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int generation_find_port(uint16_t *ret_port, struct co_error *err)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t n = sizeof a;
    co_autoclose_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) < 0)
        return co_fail(err, -errno, "cannot find a free port: %s", strerror(errno));
    *ret_port = ntohs(a.sin_port);
    return 0;
}

static struct server_opts store_opts(const struct job_spec *spec,
                                     const struct generation_callbacks *callbacks)
{
    return (struct server_opts){.max_clients = listen_limits(spec).n_clients,
                                .on_refused = callbacks->on_store_refused,
                                .on_control = callbacks->on_control,
                                .arg = callbacks->arg};
}

/* Without a store of ours: the port where rank 0 may make its own. That of a roster which has the
 * same number is not free for it. */
static int choose_port(const struct job_spec *spec, uint32_t world_size, struct generation *g,
                       struct co_error *err)
{
    bool is_taken = spec->world.keeps_rank_0 && spec->store == STORE_AUTO;
    g->agent_store = job_spec_agent_store(spec, world_size);
    g->master_port = spec->master_port;
    if (g->agent_store || (g->master_port != 0 && !is_taken))
        return 0;
    return generation_find_port(&g->master_port, err); /* a script makes its own store there */
}

static int open_store(const struct job_spec *spec, uv_loop_t *loop,
                      const struct generation_callbacks *callbacks, struct generation *g,
                      struct co_error *err)
{
    int rc = choose_port(spec, (uint32_t)spec->n_local, g, err);
    if (rc < 0 || !g->agent_store)
        return rc;
    struct server_opts opts = store_opts(spec, callbacks);
    opts.port = spec->master_port;
    rc = server_start(loop, &opts, &g->store, err);
    if (rc < 0)
        return co_fail_in(err, "cannot open the store");
    g->master_port = server_port(g->store);
    return 0;
}

static int make_memory(const struct job_spec *spec, uint32_t number, uv_loop_t *loop,
                       const struct generation_callbacks *callbacks, struct node_memory **ret,
                       struct co_error *err)
{
    const struct node_memory_opts opts = {.n_local = spec->n_local,
                                          .generation = number,
                                          .recovers = job_spec_recovers(spec),
                                          .on_note = callbacks->on_memory_note,
                                          .on_joined = callbacks->on_joined,
                                          .on_asked = callbacks->on_asked,
                                          .on_death = callbacks->on_death,
                                          .on_wait = callbacks->on_wait,
                                          .arg = callbacks->arg};
    return node_memory_create(loop, &opts, ret, err);
}

static int make_pipes(const struct job_spec *spec, uv_loop_t *loop,
                      const struct generation_callbacks *callbacks, struct progress_pipes **ret,
                      struct co_error *err)
{
    const struct progress_pipes_opts opts = {
        .n_local = spec->n_local, .on_note = callbacks->on_memory_note, .arg = callbacks->arg};
    return progress_pipes_create(loop, &opts, ret) < 0 ? co_fail(err, -ENOMEM, "out of memory") : 0;
}

static int make_checkpoint_request(const struct job_spec *spec, uv_loop_t *loop,
                                   const struct generation_callbacks *callbacks,
                                   struct checkpoint_request **ret, struct co_error *err)
{
    if (job_spec_asks(spec) && checkpoint_request_create(loop, spec->n_local, callbacks->on_saved,
                                                         callbacks->arg, ret) < 0)
        return co_fail(err, -ENOMEM, "out of memory");
    return 0;
}

int generation_open(const struct job_spec *spec, uint32_t number, uv_loop_t *loop,
                    const struct generation_callbacks *callbacks, struct generation *ret,
                    struct co_error *err)
{
    *ret = (struct generation){0};
    return make_memory(spec, number, loop, callbacks, &ret->memory, err)
        ?: make_pipes(spec, loop, callbacks, &ret->pipes, err)
        ?: make_checkpoint_request(spec, loop, callbacks, &ret->checkpoint_request, err)
        ?: open_store(spec, loop, callbacks, ret, err);
}

int generation_renew(const struct job_spec *spec, uint32_t number, uv_loop_t *loop,
                     const struct generation_callbacks *callbacks, struct generation *g,
                     struct co_error *err)
{
    struct generation next;
    if (spec->master_port != 0) /* the same number once more; else the two must not be the same */
        generation_close_store(g);
    int rc = generation_open(spec, number, loop, callbacks, &next, err);
    if (rc < 0) {
        generation_close(&next);
        return rc;
    }
    generation_close(g);
    *g = next;
    return 0;
}

int generation_renew_ranks(const struct job_spec *spec, uint32_t number, uv_loop_t *loop,
                           const struct generation_callbacks *callbacks, struct generation *g,
                           struct co_error *err)
{
    struct checkpoint_request *checkpoint_request = NULL;
    struct progress_pipes *pipes = NULL;
    struct node_memory *memory;
    int rc = make_checkpoint_request(spec, loop, callbacks, &checkpoint_request, err)
                 ?: make_pipes(spec, loop, callbacks, &pipes, err)
                 ?: make_memory(spec, number, loop, callbacks, &memory, err);
    if (rc < 0) {
        checkpoint_request_close(checkpoint_request);
        progress_pipes_close(pipes);
        return rc;
    }
    checkpoint_request_close(g->checkpoint_request);
    progress_pipes_close(g->pipes);
    node_memory_close(g->memory);
    g->checkpoint_request = checkpoint_request;
    g->pipes = pipes;
    g->memory = memory;
    return 0;
}

int generation_recover(struct generation *g, uint32_t number, const struct broker_world *world,
                       struct co_error *err)
{
    int rc = node_memory_renew(g->memory, number, world, err);
    if (rc == 0 && g->checkpoint_request != NULL)
        checkpoint_request_renew(g->checkpoint_request);
    if (rc == 0)
        progress_pipes_renew(g->pipes);
    return rc;
}

/* --- How far the ranks are --- */

/* libddp knows the calls of such a rank, and the program counts its steps. */
static void take_steps(struct progress *p, const struct progress *lines)
{
    p->steps = lines->steps;
    p->steps_before = lines->steps_before;
    p->step_ns = lines->step_ns;
    p->first_ns = lines->first_ns;
    p->last_ns = lines->last_ns;
    p->mean_ns = lines->mean_ns;
    p->inside_ns = lines->inside_ns;
}

bool generation_read_progress(const struct generation *g, int rank, struct progress *ret,
                              uint64_t *ret_digest)
{
    struct progress lines;
    uint64_t digest;
    const bool has_page = node_memory_read_progress(g->memory, rank, ret, ret_digest);
    if (g->pipes == NULL || !progress_pipes_read(g->pipes, rank, &lines, &digest))
        return has_page;
    *ret_digest = has_page ? co_hash_word(*ret_digest, digest) : digest;
    if (!has_page)
        *ret = lines;
    else if (ret->steps == 0)
        take_steps(ret, &lines);
    return true;
}

int generation_stack_signal(const struct generation *g, int rank)
{
    return g->pipes != NULL ? progress_pipes_stack_signal(g->pipes, rank) : 0;
}

uint64_t generation_most_steps(const struct generation *g, int n_local)
{
    uint64_t most = node_memory_most_steps(g->memory), digest;
    struct progress p;
    for (int i = 0; i < n_local; i++)
        if (progress_pipes_read(g->pipes, i, &p, &digest) && p.steps > most)
            most = p.steps;
    return most;
}

uint64_t generation_total_steps(const struct generation *g, int n_local)
{
    uint64_t most = node_memory_most_steps(g->memory), digest;
    struct progress p;
    for (int i = 0; i < n_local; i++)
        if (generation_read_progress(g, i, &p, &digest) && p.steps_before + p.steps > most)
            most = p.steps_before + p.steps;
    return most;
}

/* --- A store for several nodes --- */

/* As address_as_v6() has them. */
static struct in6_addr as_v6(const struct message_address *a)
{
    struct in6_addr v6 = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (a->family == 4)
        memcpy(v6.s6_addr + 12, a->bytes, 4);
    else
        memcpy(v6.s6_addr, a->bytes, sizeof v6.s6_addr);
    return v6;
}

static int make_allow(const struct job_spec *spec, const struct generation_reach *reach,
                      struct allow_list **ret, struct co_error *err)
{
    co_autofree struct in6_addr *hosts = calloc(reach->n_allowed + 1, sizeof *hosts);
    co_autofree struct allow_list *allow = calloc(1, sizeof *allow);
    if (hosts == NULL || allow == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    if (spec->world.store_allow != NULL)
        *allow = *spec->world.store_allow;
    for (uint32_t i = 0; i < reach->n_allowed; i++)
        hosts[i] = as_v6(&reach->allowed[i]);
    if (allow_set_hosts(allow, hosts, reach->n_allowed) < 0)
        return co_fail(err, -ENOMEM, "out of memory");
    *ret = co_take(&allow);
    return 0;
}

/* Every rank connects to it. */
static int open_shared_store(const struct job_spec *spec, const struct generation_reach *reach,
                             uv_loop_t *loop, const struct generation_callbacks *callbacks,
                             struct generation *g, struct co_error *err)
{
    struct server_opts opts = store_opts(spec, callbacks);
    opts.allow = g->allow;
    int rc = server_create(loop, &opts, &g->store, err)
                 ?: listen_for(g->store, reach->host, spec->master_port, err);
    if (rc == 0)
        g->master_port = server_port(g->store);
    return rc;
}

/* The ranks of this node connect to it, and the ddpruns of other nodes to another port. */
static int open_relayed_store(const struct job_spec *spec, const struct generation_reach *reach,
                              uv_loop_t *loop, const struct generation_callbacks *callbacks,
                              struct generation *g, struct co_error *err)
{
    struct server_opts opts = store_opts(spec, callbacks);
    opts.on_control = NULL;
    int rc = server_create(loop, &opts, &g->store, err)
                 ?: server_listen(g->store, GENERATION_LOCAL_HOST, 0, NULL, err);
    if (rc < 0)
        return rc;
    const struct relay_listener_opts links = {.store = g->store,
                                              .allow = g->allow,
                                              .host = reach->host,
                                              .generation = reach->generation,
                                              .callbacks = callbacks};
    g->local_port = server_port(g->store);
    rc = relay_listener_open(spec, loop, &links, &g->links, err);
    if (rc == 0)
        g->master_port = relay_listener_port(g->links);
    return rc;
}

int generation_open_store(const struct job_spec *spec, const struct generation_reach *reach,
                          uv_loop_t *loop, const struct generation_callbacks *callbacks,
                          struct generation *g, struct co_error *err)
{
    int rc = choose_port(spec, reach->world_size, g, err);
    if (rc == 0 && g->agent_store)
        rc = make_allow(spec, reach, &g->allow, err);
    if (rc < 0 || !g->agent_store)
        return rc;
    rc = spec->store_relay == RELAY_ON ? open_relayed_store(spec, reach, loop, callbacks, g, err)
                                       : open_shared_store(spec, reach, loop, callbacks, g, err);
    if (rc < 0) {
        generation_close_store(g);
        return co_fail_in(err, "cannot open the store");
    }
    return 0;
}

int generation_open_relay(const struct job_spec *spec, uint32_t number, const char *host,
                          uint16_t port, uv_loop_t *loop,
                          const struct generation_callbacks *callbacks, struct generation *g,
                          struct co_error *err)
{
    const struct relay_port_opts opts = {.host = host,
                                         .port = port,
                                         .key = spec->world.key,
                                         .run_id = spec->run_id,
                                         .generation = number,
                                         .max_clients = listen_limits(spec).n_clients,
                                         .on_refused = callbacks->on_store_refused,
                                         .arg = callbacks->arg};
    if (g->store != NULL)
        return 0;
    relay_port_close(g->relay);
    g->relay = NULL;
    int rc = relay_port_open(loop, &opts, &g->relay, err);
    if (rc < 0)
        return co_fail_in(err, "cannot open the relay to the store");
    g->local_port = relay_port_number(g->relay);
    return 0;
}

void generation_close_store(struct generation *g)
{
    relay_listener_close(g->links);
    relay_port_close(g->relay);
    g->links = NULL;
    g->relay = NULL;
    g->local_port = 0;
    if (g->store != NULL)
        server_close(g->store, NULL, NULL);
    if (g->allow != NULL)
        allow_fini(g->allow);
    free(g->allow);
    g->allow = NULL;
    g->store = NULL;
}

void generation_close(struct generation *g)
{
    generation_close_store(g);
    checkpoint_request_close(g->checkpoint_request);
    progress_pipes_close(g->pipes);
    node_memory_close(g->memory);
    *g = (struct generation){0};
}

/* --- when ranks connected to the store --- */

enum { CHILDREN_BYTES = 4096 };

static int compare_inodes(const void *a, const void *b)
{
    const struct server_local *one = a, *other = b;
    return (one->inode > other->inode) - (one->inode < other->inode);
}

/* The sockets of one process, by the names of its descriptors: "socket:[4711]". */
static void look_at_process(const struct server_local *list, size_t n_list, pid_t pid,
                            uint64_t *came_ms)
{
    char path[64], name[64];
    unsigned long long inode;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    co_autoclose_dir DIR *dir = opendir(path);
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        ssize_t n = readlinkat(dirfd(dir), entry->d_name, name, sizeof name - 1);
        name[n > 0 ? n : 0] = '\0';
        if (sscanf(name, "socket:[%llu]", &inode) != 1)
            continue;
        const struct server_local key = {.inode = inode};
        const struct server_local *found =
            bsearch(&key, list, n_list, sizeof *list, compare_inodes);
        if (found != NULL && (*came_ms == 0 || found->since_ms < *came_ms))
            *came_ms = found->since_ms;
    }
}

/* Those that its first thread has started: a script that a shell or a wrapper runs. */
static int add_children(pid_t pid, pid_t *list, int n)
{
    char name[64], text[CHILDREN_BYTES];
    int at = 0, len, child;
    snprintf(name, sizeof name, "task/%d/children", pid);
    if (co_process_read(pid, name, text, sizeof text) <= 0)
        return n;
    while (n < ARRIVALS_PROCESSES && sscanf(text + at, "%d%n", &child, &len) == 1) {
        list[n++] = child;
        at += len;
    }
    return n;
}

void store_arrivals_find(struct server *store, struct arrival *list, int n)
{
    size_t max = server_n_clients(store);
    if (max > ARRIVALS_CONNECTIONS)
        max = ARRIVALS_CONNECTIONS;
    co_autofree struct server_local *found = max > 0 ? calloc(max, sizeof *found) : NULL;
    if (found == NULL)
        return;
    size_t n_found = server_list_local(store, found, max);
    qsort(found, n_found, sizeof *found, compare_inodes);
    for (int i = 0; i < n; i++) {
        pid_t pids[ARRIVALS_PROCESSES] = {list[i].pid};
        int n_pids = list[i].pid != 0 && list[i].came_ms == 0;
        for (int k = 0; k < n_pids; k++) {
            look_at_process(found, n_found, pids[k], &list[i].came_ms);
            n_pids = add_children(pids[k], pids, n_pids);
        }
    }
}
