/* check_agent.h - the end of `ddpctl check` on a node: sends hello on standard output and answers
 * the requests on standard input (check_wire.h), until that ends. */
#ifndef DDP_CTL_PROBE_CHECK_AGENT_H
#define DDP_CTL_PROBE_CHECK_AGENT_H

#include "ctl/base/ctl.h"

#include <stdbool.h>

/* argv[0] is "check"; CHECK_WIRE_ARGUMENT asks for it. */
bool check_agent_is_asked_for(int argc, char *const *argv);

enum ctl_exit check_agent(void);

#endif
