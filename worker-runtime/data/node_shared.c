#include "node_shared.h"

#include "common/error.h"
#include "common/scope.h"
#include "worker-runtime/core/collective.h"
#include "worker-runtime/core/group.h"

#include <ddp/collective.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct place { /* where a rank is, and the memory it has made */
    int64_t node_rank, local_rank;
    int64_t pid, fd; /* fd < 0: none */
    uint64_t inode;  /* tells it from a file of another process that has the same number */
};

static void *map(int fd, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at != MAP_FAILED ? at : NULL;
}

static int make(size_t bytes, uint64_t *ret_inode, void **ret)
{
    struct stat st;
    co_autoclose_fd int fd = memfd_create("ddp shared", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0 || fstat(fd, &st) < 0)
        return -1;
    *ret = map(fd, bytes);
    *ret_inode = st.st_ino;
    return *ret != NULL ? co_take_fd(&fd) : -1;
}

static void *open_of(const struct place *p, size_t bytes)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)p->pid, (long long)p->fd);
    co_autoclose_fd int fd = p->fd >= 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_ino != p->inode || st.st_size != (off_t)bytes)
        return NULL;
    return map(fd, bytes);
}

static const struct place *leader_of(const struct place *all, int n, int node_rank)
{
    for (int r = 0; r < n; r++)
        if (all[r].node_rank == node_rank && all[r].local_rank == 0)
            return &all[r];
    return NULL;
}

/* Meet twice: to learn where the memory is, and whether all ranks have it. */
static int meet(struct ddp_group *g, size_t bytes, const struct place *own, void **memory,
                bool *ret_all_have)
{
    const size_t words = sizeof(struct place) / sizeof(int64_t);
    struct co_error err = {0};
    co_autofree struct place *all = calloc((size_t)g->world_size, sizeof *all);
    int rc = collective_agree(g, all == NULL ? -ENOMEM : 0, &err);
    if (rc == 0)
        rc = ddp_all_gather(g, own, all, words, DDP_INT64, NULL);
    if (rc != 0)
        return rc;
    const struct place *leader = leader_of(all, g->world_size, g->node_rank);
    if (g->local_rank != 0 && leader != NULL)
        *memory = open_of(leader, bytes);
    int32_t has = *memory != NULL;
    rc = ddp_all_reduce(g, &has, &has, 1, DDP_INT32, DDP_MIN, NULL);
    *ret_all_have = has != 0;
    return rc;
}

int node_shared_create(struct ddp_group *g, size_t bytes, void (*init)(void *memory, void *arg),
                       void *arg, void **ret)
{
    struct place own = {
        .node_rank = g->node_rank, .local_rank = g->local_rank, .pid = getpid(), .fd = -1};
    void *memory = NULL;
    *ret = NULL;
    if (g->backend == NULL)
        return DDP_OK;
    if (g->local_rank == 0)
        own.fd = make(bytes, &own.inode, &memory);
    if (memory != NULL)
        init(memory, arg);
    bool all_have = false;
    int rc = meet(g, bytes, &own, &memory, &all_have);
    if (own.fd >= 0)
        close((int)own.fd);
    if (rc == 0 && all_have)
        *ret = memory;
    else if (memory != NULL)
        munmap(memory, bytes);
    return rc;
}
