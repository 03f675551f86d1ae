#include "store_arrivals.h"

#include "common/process.h"
#include "common/scope.h"
#include "rendezvous/server/server.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHILDREN_BYTES = 4096 };

struct connections {
    struct server_local *list; /* by inode */
    size_t n;
};

static int compare_inodes(const void *a, const void *b)
{
    const struct server_local *one = a, *other = b;
    return (one->inode > other->inode) - (one->inode < other->inode);
}

/* returns   since when; 0: it is none of the store's */
static uint64_t find_inode(const struct connections *c, uint64_t inode)
{
    const struct server_local key = {.inode = inode};
    const struct server_local *found =
        bsearch(&key, c->list, c->n, sizeof *c->list, compare_inodes);
    return found != NULL ? found->since_ms : 0;
}

static void note(uint64_t *came_ms, uint64_t since_ms)
{
    if (since_ms != 0 && (*came_ms == 0 || since_ms < *came_ms))
        *came_ms = since_ms;
}

/* The sockets of one process, by the names of its descriptors: "socket:[4711]". */
static void look_at_process(const struct connections *c, pid_t pid, uint64_t *came_ms)
{
    char path[64], name[64];
    unsigned long long inode;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        ssize_t n = readlinkat(dirfd(dir), entry->d_name, name, sizeof name - 1);
        name[n > 0 ? n : 0] = '\0';
        if (sscanf(name, "socket:[%llu]", &inode) == 1)
            note(came_ms, find_inode(c, inode));
    }
    if (dir != NULL)
        closedir(dir);
}

/* Those that its first thread has started: a script in a shell, behind a wrapper. */
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

static void look_at_rank(const struct connections *c, struct arrival *rank)
{
    pid_t pids[ARRIVALS_PROCESSES] = {rank->pid};
    int n = 1;
    for (int i = 0; i < n; i++) {
        look_at_process(c, pids[i], &rank->came_ms);
        n = add_children(pids[i], pids, n);
    }
}

void store_arrivals_find(struct server *store, struct arrival *list, int n)
{
    struct connections c = {0};
    co_autofree struct server_local *found = NULL;
    size_t max = server_n_clients(store);
    if (max > ARRIVALS_CONNECTIONS)
        max = ARRIVALS_CONNECTIONS;
    if (max == 0 || (found = calloc(max, sizeof *found)) == NULL)
        return;
    c = (struct connections){found, server_list_local(store, found, max)};
    qsort(c.list, c.n, sizeof *c.list, compare_inodes);
    for (int i = 0; i < n; i++)
        if (list[i].pid != 0 && list[i].came_ms == 0)
            look_at_rank(&c, &list[i]);
}
