#include "refusals.h"

#include <stdio.h>

const char *refusals_note(struct refusals *r, uint64_t now_ms, const char *text)
{
    if (now_ms < r->next_ms) {
        r->n_unreported++;
        return NULL;
    }
    if (r->n_unreported > 0)
        snprintf(r->text, sizeof r->text, "%.900s (and %u more before it)", text, r->n_unreported);
    else
        snprintf(r->text, sizeof r->text, "%s", text);
    r->next_ms = now_ms + REFUSALS_EVERY_MS;
    r->n_unreported = 0;
    return r->text;
}
