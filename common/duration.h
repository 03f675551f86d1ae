/* duration.h - how long something took, for human eyes. Pure. */
#ifndef DDP_COMMON_DURATION_H
#define DDP_COMMON_DURATION_H

#include <stdint.h>

enum { CO_DURATION_BYTES = 32 };

/* "0.52 s", "12 min 3 s", "2 h 3 min", "3 d 4 h". returns buf */
char *co_duration_text(int64_t ms, char buf[CO_DURATION_BYTES]);

#endif
