#include "failure_page.h"

#include "common/escape.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

static const char style[] =
    "body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1080px;padding:0 1em;"
    "color:#222;background:#fff}h1{font-size:1.4em;margin:0}h2{font-size:1.1em;margin:1.6em 0 .4em}"
    "table{border-collapse:collapse;width:100%}"
    "td,th{text-align:left;padding:.15em .6em;border-bottom:1px solid #ddd;vertical-align:top}"
    "td.n,th.n{text-align:right;white-space:nowrap}.bad{color:#b02020}"
    "pre{background:#f3f3f3;padding:.6em;overflow:auto}p.note{color:#777}";

static bool is_given(const char *text)
{
    return text != NULL && *text != '\0';
}

static void print_section(const char *id, const char *title, const char *text, FILE *out)
{
    if (!is_given(text))
        return;
    fprintf(out, "<h2>%s</h2>\n<pre id=\"%s\">", title, id);
    co_escape_html(text, out);
    fputs("</pre>\n", out);
}

static void print_note(const char *text, FILE *out)
{
    if (!is_given(text))
        return;
    fputs("<p class=\"note\">", out);
    co_escape_html(text, out);
    fputs("</p>\n", out);
}

static void print_head(const struct failure_page *p, FILE *out)
{
    const time_t at = (time_t)p->at_s;
    struct tm tm;
    char when[32] = "";
    if (gmtime_r(&at, &tm) != NULL)
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", &tm);
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'\">\n<title>Failure of job ",
          out);
    co_escape_html(p->run_id, out);
    fprintf(out, "</title>\n<style>%s</style></head>\n<body>\n<h1>Failure of job ", style);
    co_escape_html(p->run_id, out);
    fprintf(out, "</h1>\n<p id=\"place\">generation %" PRIu32 ", node %d on ", p->generation,
            p->node);
    co_escape_html(p->host, out);
    fprintf(out, ", %s<br>program ", when);
    co_escape_html(p->program, out);
    fputs("</p>\n", out);
}

/* The first line of a stack has the process's state: "rank 1 (pid 4711, python3): sleeps ...". */
static void print_state(const char *stack, FILE *out)
{
    char line[512];
    const size_t n = strcspn(stack, "\n");
    const char *colon = memmem(stack, n, "): ", 3);
    const char *from = colon != NULL ? colon + 3 : stack;
    snprintf(line, sizeof line, "%.*s", (int)(n - (size_t)(from - stack)), from);
    co_escape_html(line, out);
}

static void print_row(const struct failure_page *p, const struct failure_rank *r, FILE *out)
{
    fprintf(out, "<tr><td class=\"n\"><a href=\"rank_%d.txt\">%d</a></td><td class=\"n\">%d</td>",
            r->rank, r->rank, (int)r->pid);
    fprintf(out, "<td%s>", r->rank == p->cause ? " class=\"bad\"" : "");
    co_escape_html(r->end, out);
    fputs("</td><td>", out);
    if (r->stack != NULL)
        print_state(r->stack, out);
    fputs("</td></tr>\n", out);
}

static void print_ranks(const struct failure_page *p, FILE *out)
{
    fputs("<h2>Ranks of this node</h2>\n<table id=\"ranks\"><tr><th class=\"n\">rank</th><th "
          "class=\"n\">pid</th><th>end</th><th>when the failure was found</th></tr>\n",
          out);
    for (int i = 0; i < p->n_ranks; i++)
        print_row(p, &p->ranks[i], out);
    fputs("</table>\n", out);
    print_note(p->no_stacks, out);
}

static void print_details(const struct failure_rank *r, const char *what, const char *text,
                          bool is_open, FILE *out)
{
    fprintf(out, "<details%s><summary>Rank %d: %s</summary>\n<pre>", is_open ? " open" : "",
            r->rank, what);
    co_escape_html(text, out);
    fputs("</pre></details>\n", out);
}

static void print_texts(const struct failure_page *p, FILE *out)
{
    bool any = false;
    for (int i = 0; i < p->n_ranks; i++) {
        const struct failure_rank *r = &p->ranks[i];
        if (!any && (is_given(r->stack) || is_given(r->tail)))
            fputs("<h2>Stacks and last lines</h2>\n<div id=\"texts\">\n", out);
        any |= is_given(r->stack) || is_given(r->tail);
        if (is_given(r->stack))
            print_details(r, "stack", r->stack, r->rank == p->cause, out);
        if (is_given(r->tail))
            print_details(r, "last lines of standard error", r->tail, r->rank == p->cause, out);
    }
    if (any)
        fputs("</div>\n", out);
}

void failure_page_print(const struct failure_page *p, FILE *out)
{
    print_head(p, out);
    print_section("report", "Report", p->report, out);
    print_section("missing", "Missing ranks", p->missing, out);
    print_ranks(p, out);
    print_section("nccl", "NCCL", p->nccl, out);
    print_section("recorder", "Flight recorder", p->recorder, out);
    print_texts(p, out);
    print_section("kernel", "Kernel messages since the job began", p->kernel, out);
    print_note(p->no_kernel, out);
    fputs("<p class=\"note\">Made by ddprun ", out);
    co_escape_html(p->version, out);
    fputs(".</p>\n</body></html>\n", out);
}
