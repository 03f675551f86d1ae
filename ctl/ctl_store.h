/* ctl_store.h - `ddpctl store`: get, set, add, wait, delete, dump on any TCPStore server that
 * speaks the dialect of torch 2.2 and later. */
#ifndef DDP_CTL_CTL_STORE_H
#define DDP_CTL_CTL_STORE_H

#include "ctl/base/ctl.h"

enum ctl_exit ctl_store(int argc, char **argv); /* argv[0] is "store" */

#endif
