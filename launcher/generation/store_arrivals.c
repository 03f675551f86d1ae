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
