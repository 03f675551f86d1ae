/* env_names.h - the names of the DDP_ variables of ddp/env.h, for a warning where one is misspelt.
 * Pure. */
#ifndef DDP_LAUNCHER_JOB_ENV_NAMES_H
#define DDP_LAUNCHER_JOB_ENV_NAMES_H

/* variable   NAME=VALUE, or a name
 * returns    the name that it may be a misspelling of; NULL: it is known, or like none, or does not
 *            begin with "DDP_" */
const char *env_names_nearest(const char *variable);

#endif
