#include "progress_lines.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { SMOOTH = 8 /* the last step is an eighth of the mean, as in rank_status.c */ };

#define LONGEST_WAIT_MS 1e12

struct report { /* what the lines of one feed have in common */
    uint64_t first, last;
    unsigned n;
    double wait_ms; /* of all of them */
};

/* Digits, not more than RANK_STATUS_MOST.
 * returns   the text after it; NULL if `text` does not start with such a number */
static const char *read_count(const char *text, uint64_t *ret)
{
    const char *at = text;
    uint64_t value = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        value = value * 10 + (uint64_t)(*at - '0');
        if (value > RANK_STATUS_MOST)
            return NULL;
    }
    *ret = value;
    return at > text ? at : NULL;
}

/* "12", "12.5" */
static const char *read_wait(const char *text, double *ret)
{
    const size_t whole = strspn(text, "0123456789");
    size_t n = whole;
    if (text[n] == '.')
        n += 1 + strspn(text + n + 1, "0123456789");
    *ret = strtod(text, NULL); /* ddprun sets no locale */
    return whole > 0 && *ret <= LONGEST_WAIT_MS ? text + n : NULL;
}

static bool read_line(const char *line, uint64_t *ret_step, double *ret_wait_ms)
{
    static const char step[] = "step ", wait[] = " wait_ms ";
    const char *at;
    *ret_wait_ms = 0;
    if (strncmp(line, step, sizeof step - 1) != 0 ||
        (at = read_count(line + sizeof step - 1, ret_step)) == NULL)
        return false;
    if (strncmp(at, wait, sizeof wait - 1) == 0)
        at = read_wait(at + sizeof wait - 1, ret_wait_ms);
    return at != NULL && *at == '\0';
}

/* One that Linux has, and that can be caught. */
static bool read_signal(const char *line, int *ret)
{
    static const char name[] = "stack_signal ";
    uint64_t sig;
    if (strncmp(line, name, sizeof name - 1) != 0)
        return false;
    const char *end = read_count(line + sizeof name - 1, &sig);
    if (end == NULL || *end != '\0' || sig < 1 || sig > 64 || sig == SIGKILL || sig == SIGSTOP)
        return false;
    *ret = (int)sig;
    return true;
}

static void take_line(struct progress_lines *p, struct report *r)
{
    uint64_t step;
    double wait_ms;
    p->len -= p->len > 0 && p->line[p->len - 1] == '\r';
    p->line[p->len] = '\0';
    const bool is_whole = !p->skips && strlen(p->line) == p->len;
    if (is_whole && read_signal(p->line, &p->stack_signal))
        return;
    if (!is_whole || !read_line(p->line, &step, &wait_ms)) {
        p->n_bad++;
        return;
    }
    p->n_lines++;
    if (r->n++ == 0)
        r->first = step;
    if (r->n == 1 || step > r->last)
        r->last = step;
    r->wait_ms += wait_ms;
}

static uint64_t smooth(uint64_t mean, uint64_t last)
{
    if (mean == 0)
        return last;
    return last > mean ? mean + (last - mean) / SMOOTH : mean - (mean - last) / SMOOTH;
}

/* The first report of a generation shows after how many steps it began: after those before it. */
static void begin(struct progress_lines *p, const struct report *r, uint64_t now_ns)
{
    struct progress *g = &p->progress;
    g->steps_before = r->first > 0 ? r->first - 1 : 0;
    g->steps = r->last - g->steps_before;
    if (g->steps > 0)
        g->first_ns = g->step_ns = now_ns;
}

static void count(struct progress *g, const struct report *r, uint64_t n_steps, uint64_t now_ns)
{
    const uint64_t wait_ns = (uint64_t)(r->wait_ms / r->n * 1e6);
    g->steps += n_steps;
    if (g->step_ns != 0) {
        g->last_ns = (now_ns - g->step_ns) / n_steps;
        g->mean_ns = smooth(g->mean_ns, g->last_ns);
        g->inside_ns = smooth(g->inside_ns, wait_ns);
        if (g->inside_ns > g->mean_ns)
            g->inside_ns = g->mean_ns;
    } else {
        g->first_ns = now_ns;
    }
    g->step_ns = now_ns;
}

static void take_report(struct progress_lines *p, const struct report *r, uint64_t now_ns)
{
    struct progress *g = &p->progress;
    if (r->n == 0)
        return;
    if (!g->only_steps)
        begin(p, r, now_ns);
    else if (r->last > g->steps_before + g->steps)
        count(g, r, r->last - g->steps_before - g->steps, now_ns);
    g->only_steps = true;
}

void progress_lines_feed(struct progress_lines *p, const char *bytes, size_t n, uint64_t now_ns)
{
    struct report r = {0};
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            take_line(p, &r);
            p->len = 0;
            p->skips = false;
        } else if (p->len < sizeof p->line - 1) {
            p->line[p->len++] = bytes[i];
        } else {
            p->skips = true;
        }
    }
    take_report(p, &r, now_ns);
}

void progress_lines_renew(struct progress_lines *p)
{
    p->progress = (struct progress){0};
}
