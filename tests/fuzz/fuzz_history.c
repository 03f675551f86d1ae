/* fuzz_history.c - any bytes as a file of events: a page is made of them, within its bounds, and
 * nothing of them is markup. */
#include "fuzz.h"
#include "history/history.h"
#include "history/history_page.h"

#include <stdlib.h>
#include <string.h>

static void make_page(struct history *h)
{
    char *page = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&page, &n);
    if (out == NULL)
        return;
    require(history_finish(h) == 0);
    require(history_page_print(h, "0", NULL, out) == 0);
    require(fclose(out) == 0);
    require(strstr(page, "<script") == NULL && strlen(page) == n);
    free(page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct history h;
    const char *at = (const char *)data, *end = at + size;
    history_init(&h, NULL);
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t n = newline != NULL ? (size_t)(newline - at) + 1 : (size_t)(end - at);
        history_add(&h, at, n);
        at += n;
    }
    make_page(&h);
    history_fini(&h);
    return 0;
}
