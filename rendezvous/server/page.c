#include "page.h"

#include "common/buf.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void page_append(struct page *p, const char *text, size_t len)
{
    if (p->rc == 0)
        p->rc = co_buf_append(p->out, text, len);
}

void page_print(struct page *p, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    page_append(p, text, len < (int)sizeof text ? (size_t)len : sizeof text - 1);
}

void page_metric_head(struct page *p, const char *name, const char *type, const char *help)
{
    page_print(p, "# HELP ddp_rendezvous_%s %s\n# TYPE ddp_rendezvous_%s %s\n", name, help, name,
               type);
}

void page_metric(struct page *p, const char *name, const char *type, const char *help,
                 uint64_t value)
{
    page_metric_head(p, name, type, help);
    page_print(p, "ddp_rendezvous_%s %" PRIu64 "\n", name, value);
}
