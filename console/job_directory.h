/* job_directory.h - where the directory of a ddprun is, and the socket in it that takes requests.
 *
 *     $XDG_RUNTIME_DIR/ddprun-XXXXXX/      0700, made by ddprun, one for each
 *         socket                           a stream socket; job_request.h has what goes over it
 *         boot                             the boot id of the host on which it was made
 *         ...                              small files of ddprun's own
 *
 * The spawner removes the directory when ddprun is killed, so a socket on which no process listens
 * is rare: both were killed at once, and the next client removes it. On a file system that several
 * hosts share, it may also be the socket of a job on another host, which refuses connections from
 * here as well: the boot id distinguishes the two. Names are as short as possible and are relative
 * to the directory's descriptor, because the path of a socket has at most 107 bytes. */
#ifndef DDP_CONSOLE_JOB_DIRECTORY_H
#define DDP_CONSOLE_JOB_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct co_error;

#define JOB_DIRECTORY_PREFIX      "ddprun-" /* and six letters and figures, drawn by lot */
#define JOB_DIRECTORY_MAX_PARENTS 5
#define JOB_DIRECTORIES_MAX       4096 /* that are looked at */

/* The parents of these directories; the first that is usable counts: $XDG_RUNTIME_DIR, /dev/shm,
 * $TMPDIR, /tmp. Those in memory come first: making and removing a directory on a disk costs a
 * tenth of a short job's time. Absolute ones only, since workers may change their directory; lent.
 *
 * returns   how many, at most JOB_DIRECTORY_MAX_PARENTS */
size_t job_directory_parents(const char *ret[JOB_DIRECTORY_MAX_PARENTS]);

/* Which directories count: each belongs to one user alone, and a process of that user listens in
 * it. */
enum job_directory_owner {
    JOB_DIRECTORY_OURS,
    JOB_DIRECTORY_ANY, /* for root: others cannot open what is not theirs */
};

/* Where the directories of this user are: in the parents above, or in the one of a login session,
 * which ddprun had and we lack. For any user: in those of all sessions. Directories that are open
 * to other users do not count. */
struct job_directories {
    char **paths; /* owned; in order of name */
    size_t n;
};

/* returns   0, -ENOMEM. job_directories_fini() in any case */
int job_directories_find(enum job_directory_owner owner, struct job_directories *ret,
                         struct co_error *err);
void job_directories_fini(struct job_directories *f); /* a zeroed one is fine */

/* Listen at the socket of a directory of ours. The name exists from the moment at which a client
 * can connect to it.
 *
 * returns   a descriptor, close-on-exec, non-blocking; -errno */
int job_directory_listen(const char *path, struct co_error *err);

/* Connect to it, without waiting. The process that listens there belongs to the owner of the
 * directory, according to the kernel, so that no user can lead root to a socket of another one.
 *
 * returns   a descriptor, close-on-exec, non-blocking
 *           -ENOENT        no directory, or no socket in it: no ddprun, or one that is starting
 *           -ECONNREFUSED  no process of this host listens: job_directory_remove_dead() it
 *           -EAGAIN        too many wait there already
 *           -EACCES        it is not ours, or open to others, or another user listens
 *           -errno */
int job_directory_connect(const char *path, enum job_directory_owner owner, struct co_error *err);

/* Remove a directory whose socket refused, if its ddprun ran since the last boot of this host: that
 * process cannot come back. A directory of another host, from before a boot, or not known to be
 * ours alone stays. */
void job_directory_remove_dead(const char *path);

/* Is the one at the other end of a socket our user, or root? */
bool job_directory_knows_peer(int fd);

/* The uid of the process that began to listen; -1: not known. */
uid_t job_directory_peer_uid(int fd);

/* The pid of the peer in our PID namespace; on a client's end, of the process that began to listen.
 * 0: not known. */
pid_t job_directory_peer(int fd);

#endif
