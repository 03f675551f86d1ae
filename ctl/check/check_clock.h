/* check_clock.h - the wall clock, whose difference between nodes `ddpctl check` tells. */
#ifndef DDP_CTL_CHECK_CHECK_CLOCK_H
#define DDP_CTL_CHECK_CHECK_CLOCK_H

#include <stdint.h>

int64_t check_clock_now_ns(void); /* since 1970 */

#endif
