/* job_folder.h - where a ddprun's folder is, and the socket in it by which it is asked.
 *
 *     $XDG_RUNTIME_DIR/ddprun-XXXXXX/      0700, made by ddprun, one for each
 *         socket                           a stream socket; job_request.h has what goes over it
 *         boot                             the boot id of the host on which it was made
 *         ...                              small files of ddprun's own
 *
 * The spawner removes the folder when ddprun is killed, so a socket on which nobody listens is
 * rare: both were killed at once, and who meets it removes it. On a file system of several hosts it
 * may also be that of a job elsewhere, which refuses here, too: the boot id tells them apart. Names
 * are as short as they can be, and go by way of the folder's descriptor: a socket's path has room
 * for 107 bytes only. */
#ifndef DDP_CONSOLE_JOB_FOLDER_H
#define DDP_CONSOLE_JOB_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct co_error;

#define JOB_FOLDER_PREFIX      "ddprun-" /* and six letters and figures, drawn by lot */
#define JOB_FOLDER_MAX_PARENTS 5
#define JOB_FOLDERS_MAX        4096 /* that are looked at */

/* The folders in which they are made, the first that takes it: $XDG_RUNTIME_DIR, /dev/shm, $TMPDIR,
 * /tmp. Those in memory come first: a folder made and removed on a disk costs a tenth of a short
 * job's time. Absolute ones only, since workers may change their directory; lent.
 *
 * returns   how many, at most JOB_FOLDER_MAX_PARENTS */
size_t job_folder_parents(const char *ret[JOB_FOLDER_MAX_PARENTS]);

/* Which folders count: each belongs to one user alone, and a process of that user listens in it. */
enum job_folder_owner {
    JOB_FOLDER_OURS,
    JOB_FOLDER_ANY, /* for root: others cannot open what is not theirs */
};

/* Where folders of this user are: in the parents above, or in that of a login session, which
 * ddprun had and we lack; of any user: in those of all sessions. Of those that are open to others
 * none. */
struct job_folders {
    char **paths; /* owned; in order of name */
    size_t n;
};

/* returns   0, -ENOMEM. job_folders_fini() in any case */
int job_folders_find(enum job_folder_owner owner, struct job_folders *ret, struct co_error *err);
void job_folders_fini(struct job_folders *f); /* a zeroed one is fine */

/* Listen at the socket of a folder of ours. It is there under its name from the moment at which it
 * can be connected to.
 *
 * returns   a descriptor, close-on-exec, non-blocking; -errno */
int job_folder_listen(const char *path, struct co_error *err);

/* Connect to it, without waiting. The process that listens there is of the folder's owner, by the
 * kernel's word, so that no user can lead root to a socket of another one.
 *
 * returns   a descriptor, close-on-exec, non-blocking
 *           -ENOENT        there is no folder, or no socket in it: no ddprun, or one that begins
 *           -ECONNREFUSED  nobody listens, of this host: job_folder_remove_dead() it
 *           -EAGAIN        too many wait there already
 *           -EACCES        it is not ours, or open to others, or another user listens
 *           -errno */
int job_folder_connect(const char *path, enum job_folder_owner owner, struct co_error *err);

/* Remove it and the plain files in it. Safe to call when it is gone already, and for NULL. */
void job_folder_remove(const char *path);

/* Remove one that refused, when it was listened at under the kernel that runs now: nobody can come
 * back. One of another host, from before a boot, or not known to be ours alone is left alone. */
void job_folder_remove_dead(const char *path);

/* Is the one at the other end of a socket our user, or root? */
bool job_folder_knows_peer(int fd);

/* Its uid, of who began to listen; -1: not known. */
uid_t job_folder_peer_uid(int fd);

/* Its pid, as our PID namespace has it: of a client's end who began to listen; 0: not known. */
pid_t job_folder_peer(int fd);

#endif
