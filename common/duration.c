#include "duration.h"

#include <inttypes.h>
#include <stdio.h>

char *co_duration_text(int64_t ms, char buf[CO_DURATION_BYTES])
{
    int64_t s = ms / 1000;
    if (s < 60)
        snprintf(buf, CO_DURATION_BYTES, "%" PRId64 ".%02d s", s, (int)(ms % 1000 / 10));
    else if (s < 3600)
        snprintf(buf, CO_DURATION_BYTES, "%d min %d s", (int)(s / 60), (int)(s % 60));
    else if (s < 86400)
        snprintf(buf, CO_DURATION_BYTES, "%d h %d min", (int)(s / 3600), (int)(s % 3600 / 60));
    else
        snprintf(buf, CO_DURATION_BYTES, "%" PRId64 " d %d h", s / 86400, (int)(s % 86400 / 3600));
    return buf;
}
