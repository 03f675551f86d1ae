#include "port_owner.h"

#include "common/process.h"
#include "common/scope.h"
#include "common/utf8.h"
#include "peer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS_MAX = 1 << 16, LINK_BYTES = 64 };

struct search {
    char link[LINK_BYTES]; /* as /proc/PID/fd shows the socket */
    int n_links;           /* that were read */
};

static bool has_socket(struct search *s, const char *pid)
{
    char path[64], link[LINK_BYTES];
    snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    DIR *fds = opendir(path);
    bool is_found = false;
    for (struct dirent *e;
         !is_found && fds != NULL && s->n_links < LINKS_MAX && (e = readdir(fds)) != NULL;
         s->n_links++) {
        const ssize_t n = readlinkat(dirfd(fds), e->d_name, link, sizeof link - 1);
        link[n > 0 ? n : 0] = '\0';
        is_found = strcmp(link, s->link) == 0;
    }
    if (fds != NULL)
        closedir(fds);
    return is_found;
}

/* returns the process with the lowest number, as several may share the socket; 0: none is seen */
static pid_t find_process(const struct peer_owner *owner)
{
    struct search s = {0};
    struct stat st;
    pid_t found = 0;
    DIR *all = opendir("/proc");
    snprintf(s.link, sizeof s.link, "socket:[%llu]", (unsigned long long)owner->inode);
    for (struct dirent *e; all != NULL && (e = readdir(all)) != NULL;) {
        const pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid > 0 && (found == 0 || pid < found) && fstatat(dirfd(all), e->d_name, &st, 0) == 0 &&
            (st.st_uid == owner->uid || geteuid() == 0) && has_socket(&s, e->d_name))
            found = pid;
    }
    if (all != NULL)
        closedir(all);
    return found;
}

char *port_owner_text(const struct sockaddr_storage *address, char buf[PORT_OWNER_BYTES])
{
    struct peer_owner owner;
    struct co_process process;
    buf[0] = '\0';
    if (peer_find_bound(address, &owner) < 0)
        return buf;
    const pid_t pid = find_process(&owner);
    if (pid > 0 && co_process_look(pid, &process, NULL) == 0) {
        co_utf8_clean(process.name, strlen(process.name)); /* which it gave itself */
        snprintf(buf, PORT_OWNER_BYTES, " by %.64s (pid %d)", process.name, pid);
    } else {
        snprintf(buf, PORT_OWNER_BYTES, " by a process of user ID %u", owner.uid);
    }
    return buf;
}
