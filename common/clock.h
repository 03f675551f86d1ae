/* clock.h - monotonic time, and deadlines made of it. */
#ifndef DDP_COMMON_CLOCK_H
#define DDP_COMMON_CLOCK_H

#include <stdint.h>

uint64_t co_now_ns(void);
uint64_t co_now_ms(void);

#define CO_NEVER_MS UINT64_MAX /* a deadline that does not come */

/* The deadline that is `timeout_ms` from now; CO_NEVER_MS stays what it is, sums do not wrap. */
uint64_t co_deadline_ms(uint64_t timeout_ms);

/* Milliseconds left until the deadline as poll() wants them: 0 when it has passed, -1 for never. */
int co_left_ms(uint64_t deadline_ms);

#endif
