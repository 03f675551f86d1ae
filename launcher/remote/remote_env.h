/* remote_env.h - which variables of this machine's environment go along to other hosts. Pure. */
#ifndef DDP_LAUNCHER_REMOTE_REMOTE_ENV_H
#define DDP_LAUNCHER_REMOTE_REMOTE_ENV_H

/* All of them, as a Python environment or a library path is one of many, apart from those that mean
 * something on this machine or in this session only (HOME, TMPDIR, SSH_*, XDG_*, DISPLAY, SLURM_*
 * and so on), and the nodes' secret. What is exported goes along in any case.
 *
 * environment   NAME=VALUE, NULL-terminated
 * exports       NAME, or NAME=VALUE, which wins; NULL-terminated. A NAME that is not set is skipped
 * ret           owned by the caller, one free(); its texts are those of the arguments
 * returns       0, -ENOMEM */
int remote_env_make(char *const *environment, const char *const *exports, char ***ret);

#endif
