#include "history_page.h"

#include "common/duration.h"
#include "common/escape.h"
#include "common/scope.h"
#include "history.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    WIDTH = 1000, /* of the pictures, in their own units */
    LEFT = 70,    /* the margin before what is drawn, for names */
    TOP = 24,
    LANES_HEIGHT = 640, /* of all lanes together, at most */
    LANE_MOST = 18,
    CHART_HEIGHT = 160,
    N_TICKS = 6,
};

static const char style[] =
    "body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1080px;padding:0 1em;"
    "color:#222;background:#fff}"
    "h1{font-size:1.4em;margin:0}h2{font-size:1.1em;margin:1.6em 0 .4em}"
    "table{border-collapse:collapse;width:100%}"
    "td,th{text-align:left;padding:.15em .6em;border-bottom:1px solid #ddd;vertical-align:top}"
    "td.n,th.n{text-align:right;white-space:nowrap}code{background:#f3f3f3;padding:0 .2em}"
    "svg{width:100%;height:auto;background:#fafafa;border:1px solid #ddd}"
    "svg text{font:11px system-ui,sans-serif;fill:#555}"
    ".fate-runs{fill:#7aa7d8}.fate-well{fill:#7dbb7d}.fate-failed{fill:#cc3d3d}"
    ".fate-consequence{fill:#e8a04a}.fate-stopped{fill:#bdbdbd}"
    ".axis{stroke:#ccc}.generation{stroke:#555;stroke-dasharray:3 3}"
    ".mark{fill:#555}.trouble{fill:#cc3d3d}.line{fill:none;stroke:#3b6ea5;stroke-width:1.5}"
    ".point{fill:#3b6ea5}.legend span{display:inline-block;margin-right:1.2em}"
    ".legend i{display:inline-block;width:.9em;height:.9em;margin-right:.35em;vertical-align:-.1em}"
    "pre{background:#f3f3f3;padding:.6em;overflow:auto}"
    "body.gone::before{content:\"ddprun has exited, or does not answer. This is what it showed "
    "last.\";display:block;background:#fbe9e9;color:#b02020;padding:.4em .6em;margin-bottom:1em}"
    ".good{color:#2d7a2d}.bad{color:#b02020}p.note{color:#777}";

static const struct {
    const char *class, *words, *color;
} fates[HISTORY_N_FATES] = {
    [FATE_RUNS] = {"fate-runs", "unknown", "#7aa7d8"},
    [FATE_WELL] = {"fate-well", "succeeded", "#7dbb7d"},
    [FATE_FAILED] = {"fate-failed", "failed", "#cc3d3d"},
    [FATE_CONSEQUENCE] = {"fate-consequence", "failed (peer lost)", "#e8a04a"},
    [FATE_STOPPED] = {"fate-stopped", "stopped", "#bdbdbd"},
};

/* --- Times --- */

struct scale { /* seconds to places of a picture */
    double first_s, span_s;
};

static double x_of(const struct scale *s, double at_s)
{
    double part = (at_s - s->first_s) / s->span_s;
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return LEFT + part * (WIDTH - LEFT - 10);
}

static const char *duration(double s, char buf[CO_DURATION_BYTES])
{
    return co_duration_text(s > 0 ? (int64_t)(s * 1000) : 0, buf);
}

static void print_clock(double at_s, FILE *out)
{
    char text[64];
    time_t whole = (time_t)at_s;
    struct tm utc;
    if (gmtime_r(&whole, &utc) == NULL || strftime(text, sizeof text, "%F %T", &utc) == 0)
        return;
    fprintf(out, "%s.%03d UTC", text, (int)((at_s - floor(at_s)) * 1000));
}

static void print_ticks(const struct scale *s, int height, FILE *out)
{
    char text[CO_DURATION_BYTES];
    for (int i = 0; i <= N_TICKS; i++) {
        double part = (double)i / N_TICKS;
        double x = x_of(s, s->first_s + part * s->span_s);
        fprintf(out, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", x, x,
                TOP, height);
        fprintf(out, "<text x=\"%.1f\" y=\"14\" text-anchor=\"%s\">%s</text>\n", x,
                i == N_TICKS ? "end" : "middle", duration(part * s->span_s, text));
    }
}

/* --- The head --- */

static void print_summary(const struct history *h, FILE *out)
{
    char text[CO_DURATION_BYTES];
    fputs("<h1>Job ", out);
    co_escape_html(h->job[0] != '\0' ? h->job : "?", out);
    fputs("</h1>\n<p>", out);
    if (h->program != NULL) {
        fputs("<code>", out);
        co_escape_html(h->program, out);
        fputs("</code><br>", out);
    }
    if (h->is_running)
        fputs("Running", out);
    else if (!h->has_end)
        fputs("Still running, or outcome unknown", out);
    else if (h->code == 0)
        fputs("<b class=\"good\">Succeeded</b>", out);
    else
        fprintf(out, "<b class=\"bad\">Failed with exit status %d</b>", h->code);
    fprintf(out, " %s %s; %d ranks, %d generation%s. Started ", h->is_running ? "for" : "after",
            duration(h->last_s - h->first_s, text), history_n_ranks(h), history_n_generations(h),
            history_n_generations(h) == 1 ? "" : "s");
    print_clock(h->first_s, out);
    fputs(".</p>\n", out);
}

static void print_notes(const struct history *h, FILE *out)
{
    if (h->n_unread > 0)
        fprintf(out, "<p class=\"note\">%zu lines could not be read.</p>\n", h->n_unread);
    if (h->n_beyond > 0)
        fprintf(out, "<p class=\"note\">%zu events after the first %zu are not shown.</p>\n",
                h->n_beyond, h->max_events);
    if (h->n_others > 0)
        fprintf(out, "<p class=\"note\">%zu events of other jobs are not shown.</p>\n",
                h->n_others);
}

/* --- Goodput --- */

static const struct {
    const char *name, *words, *color;
} causes[] = {
    {"productive", "productive", "#7dbb7d"},
    {"start", "start", "#7aa7d8"},
    {"rendezvous", "rendezvous", "#a7c4e4"},
    {"waiting_for_nodes", "waiting for nodes", "#c9b8e8"},
    {"checkpoint", "checkpoint before a change of nodes", "#b7d9b7"},
    {"hang", "hang", "#8c2f2f"},
    {"restart", "restart", "#cc3d3d"},
    {"recovery", "recovery in place", "#e8a04a"},
    {"shutdown", "shutdown", "#bdbdbd"},
};

enum { N_CAUSES = sizeof causes / sizeof *causes, GOODPUT_HEIGHT = 22 };

/* A cause of a later version has no place in the picture. */
static double seconds_of(const struct history_goodput *g, const char *name)
{
    for (int i = 0; i < g->n_causes; i++)
        if (strcmp(g->causes[i].name, name) == 0)
            return g->causes[i].s;
    return 0;
}

static void print_goodput(const struct history *h, FILE *out)
{
    const struct history_goodput *g = &h->goodput;
    const double total_s = g->total_s > 0.001 ? g->total_s : 0.001;
    char text[CO_DURATION_BYTES];
    double x = 0;
    if (!g->is_known)
        return;
    fprintf(out, "<h2>Goodput</h2>\n<p><b>%.1f %%</b> of %s%s</p>\n", 100 * g->ratio,
            duration(g->total_s, text),
            g->by_steps ? ""
                        : " (no steps are reported: the job counts as productive while all "
                          "ranks run)");
    fprintf(out, "<svg id=\"goodput\" viewBox=\"0 0 %d %d\" role=\"img\">\n", WIDTH,
            GOODPUT_HEIGHT);
    for (int i = 0; i < N_CAUSES; i++) {
        const double width = seconds_of(g, causes[i].name) / total_s * WIDTH;
        const double fits = x + width > WIDTH ? WIDTH - x : width;
        if (fits <= 0)
            continue;
        fprintf(out,
                "<path fill=\"%s\" d=\"M%.2f 0h%.2fv%dh-%.2fz\"><title>%s: %s</title></path>\n",
                causes[i].color, x, fits, GOODPUT_HEIGHT, fits, causes[i].words,
                duration(seconds_of(g, causes[i].name), text));
        x += fits;
    }
    fputs("</svg>\n<p class=\"legend\">", out);
    for (int i = 0; i < N_CAUSES; i++)
        if (seconds_of(g, causes[i].name) > 0)
            fprintf(out, "<span><i style=\"background:%s\"></i>%s %s</span>", causes[i].color,
                    causes[i].words, duration(seconds_of(g, causes[i].name), text));
    fputs("</p>\n", out);
}

/* --- The timeline --- */

/* What has no end is unknown, unless the job is known to run. */
static const char *words_of(const struct history *h, enum history_fate fate)
{
    return fate == FATE_RUNS && h->is_running ? "running" : fates[fate].words;
}

static void print_legend(const struct history *h, FILE *out)
{
    fputs("<p class=\"legend\">", out);
    for (int i = 0; i < HISTORY_N_FATES; i++)
        fprintf(out, "<span><i style=\"background:%s\"></i>%s</span>", fates[i].color,
                words_of(h, (enum history_fate)i));
    fputs("</p>\n", out);
}

static void print_bar(const struct history *h, const struct history_run *run, const struct scale *s,
                      double lane, FILE *out)
{
    char text[CO_DURATION_BYTES];
    double x = x_of(s, run->begun_s);
    double width = x_of(s, run->ended_s) - x;
    fprintf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>",
            fates[run->fate].class, x, TOP + run->rank * lane, width > 1 ? width : 1,
            lane > 4 ? lane - 2 : lane * 0.9);
    co_escape_html_printf(out, "rank %d, generation %d: %s%s%s after %s; %s, pid %" PRId64,
                          run->rank, run->generation, words_of(h, run->fate),
                          run->signal[0] != '\0' ? ", " : "", run->signal,
                          duration(run->ended_s - run->begun_s, text), run->host, run->pid);
    fputs("</title></rect>\n", out);
}

/* Where each generation begins, and what happened above the lanes. */
static void print_moments(const struct history *h, const struct scale *s, int height, FILE *out)
{
    int next = 1;
    for (size_t i = 0; i < h->n_runs; i++) {
        if (h->runs[i].generation < next)
            continue;
        double x = x_of(s, h->runs[i].begun_s);
        next = h->runs[i].generation + 1;
        fprintf(out,
                "<line class=\"generation\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"><title>"
                "generation %d</title></line>\n",
                x, x, TOP - 6, height, h->runs[i].generation);
    }
    for (size_t i = 0; i < h->n_marks && i < HISTORY_PAGE_LINES; i++) {
        const struct history_mark *m = &h->marks[i];
        double x = x_of(s, m->at_s);
        fprintf(out, "<path class=\"%s\" d=\"M%.1f %d l-4 -7 h8 z\"><title>",
                m->is_trouble ? "trouble" : "mark", x, TOP);
        co_escape_html(m->text, out);
        fputs("</title></path>\n", out);
    }
}

static void print_names(int n_lanes, double lane, FILE *out)
{
    int every = lane >= 12 ? 1 : (int)(12 / lane) + 1;
    for (int rank = 0; rank < n_lanes; rank += every)
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">rank %d</text>\n", LEFT - 6,
                TOP + rank * lane + (lane < 12 ? 9 : lane / 2 + 3), rank);
}

static void print_timeline(const struct history *h, const struct scale *s, FILE *out)
{
    int n_ranks = history_n_ranks(h);
    int n_lanes = n_ranks < HISTORY_PAGE_LANES ? n_ranks : HISTORY_PAGE_LANES;
    double lane = n_lanes > 0 ? (double)LANES_HEIGHT / n_lanes : LANE_MOST;
    lane = lane < LANE_MOST ? lane : LANE_MOST;
    int height = TOP + (int)ceil(n_lanes * lane) + 6;
    size_t n_bars = 0;
    fputs("<h2>Ranks</h2>\n", out);
    print_legend(h, out);
    fprintf(out, "<svg id=\"timeline\" viewBox=\"0 0 %d %d\" role=\"img\">\n", WIDTH, height);
    print_ticks(s, height, out);
    print_names(n_lanes, lane, out);
    for (size_t i = 0; i < h->n_runs && n_bars < HISTORY_PAGE_BARS; i++) {
        if (h->runs[i].rank >= n_lanes)
            continue;
        print_bar(h, &h->runs[i], s, lane, out);
        n_bars++;
    }
    print_moments(h, s, height, out);
    fputs("</svg>\n", out);
    if (n_lanes < n_ranks || n_bars == HISTORY_PAGE_BARS)
        fprintf(out, "<p class=\"note\">%d of %d ranks and %zu of %zu runs are drawn.</p>\n",
                n_lanes, n_ranks, n_bars, h->n_runs);
}

/* --- Steps --- */

static double y_of(double step_ms, double most_ms)
{
    return CHART_HEIGHT - 8 - (most_ms > 0 ? step_ms / most_ms : 0) * (CHART_HEIGHT - 8 - TOP - 8);
}

static void print_points(const struct history *h, const struct scale *s, double most_ms, FILE *out)
{
    size_t every = h->n_paces / HISTORY_PAGE_POINTS + 1;
    fputs("<polyline class=\"line\" points=\"", out);
    for (size_t i = 0; i < h->n_paces; i += every)
        fprintf(out, "%.1f,%.1f ", x_of(s, h->paces[i].at_s), y_of(h->paces[i].step_ms, most_ms));
    fputs("\"/>\n", out);
    for (size_t i = 0; i < h->n_paces; i += every) {
        const struct history_pace *p = &h->paces[i];
        fprintf(out,
                "<circle class=\"point\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>step %" PRId64
                ": step time %.4g ms; the slowest rank is %d: without it the step time would be "
                "%.0f %% less</title></circle>\n",
                x_of(s, p->at_s), y_of(p->step_ms, most_ms), p->steps, p->step_ms, p->slowest,
                100 * p->share);
    }
}

static void print_steps(const struct history *h, const struct scale *s, FILE *out)
{
    double most_ms = 0;
    if (h->n_paces == 0)
        return;
    for (size_t i = 0; i < h->n_paces; i++)
        most_ms = h->paces[i].step_ms > most_ms ? h->paces[i].step_ms : most_ms;
    fputs("<h2>Step time</h2>\n", out);
    fprintf(out, "<svg id=\"steps\" viewBox=\"0 0 %d %d\" role=\"img\">\n", WIDTH, CHART_HEIGHT);
    print_ticks(s, CHART_HEIGHT - 8, out);
    for (int i = 0; i <= 2; i++) {
        double ms = most_ms * i / 2;
        double y = y_of(ms, most_ms);
        fprintf(out, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                WIDTH - 10, y, y);
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3g ms</text>\n", LEFT - 6,
                y + 4, ms);
    }
    print_points(h, s, most_ms, out);
    fputs("</svg>\n", out);
}

/* --- Tables --- */

static void print_failure(const struct history *h, const struct history_run *run, FILE *out)
{
    char text[CO_DURATION_BYTES];
    fprintf(out, "<tr><td class=\"n\">%s</td><td class=\"n\">%d</td><td class=\"n\">%d</td><td>",
            duration(run->ended_s - h->first_s, text), run->generation, run->rank);
    co_escape_html(run->host, out);
    fprintf(out, "</td><td class=\"n\">%" PRId64 "</td><td>", run->pid);
    if (run->signal[0] != '\0')
        co_escape_html_printf(out, "killed by %s", run->signal);
    else
        fprintf(out, "exit status %d", run->code);
    fprintf(out, "%s</td><td class=\"n\">%s</td></tr>\n",
            run->fate == FATE_CONSEQUENCE ? " (peer lost)" : "",
            duration(run->ended_s - run->begun_s, text));
}

/* Runs are in the order of their starts. */
static int compare_ends(const void *a, const void *b)
{
    const struct history_run *one = *(const struct history_run *const *)a;
    const struct history_run *other = *(const struct history_run *const *)b;
    const int order = (one->ended_s > other->ended_s) - (one->ended_s < other->ended_s);
    return order != 0 ? order : (one > other) - (one < other);
}

/* returns   0, -ENOMEM */
static int print_failures(const struct history *h, FILE *out)
{
    size_t n = 0;
    co_autofree const struct history_run **failed = calloc(h->n_runs + 1, sizeof *failed);
    if (failed == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < h->n_runs; i++)
        if (h->runs[i].fate == FATE_FAILED || h->runs[i].fate == FATE_CONSEQUENCE)
            failed[n++] = &h->runs[i];
    if (n == 0)
        return 0;
    qsort(failed, n, sizeof *failed, compare_ends);
    fputs("<h2>Failures</h2>\n<table id=\"failures\"><tr><th class=\"n\">time</th><th "
          "class=\"n\">generation</th><th class=\"n\">rank</th><th>host</th><th "
          "class=\"n\">pid</th><th>reason</th><th class=\"n\">uptime</th></tr>\n",
          out);
    for (size_t i = 0; i < n && i < HISTORY_PAGE_LINES; i++)
        print_failure(h, failed[i], out);
    fputs("</table>\n", out);
    return 0;
}

static const char *node_of(const struct history_mark *m, char text[16])
{
    text[0] = '\0';
    if (m->node >= 0)
        snprintf(text, 16, "%d", m->node);
    return text;
}

static void print_marks(const struct history *h, FILE *out)
{
    char node[16];
    char text[CO_DURATION_BYTES];
    if (h->n_marks == 0)
        return;
    fputs("<h2>Events</h2>\n<table id=\"events\"><tr><th class=\"n\">time</th><th "
          "class=\"n\">generation</th><th class=\"n\">node</th><th>event</th></tr>\n",
          out);
    for (size_t i = 0; i < h->n_marks && i < HISTORY_PAGE_LINES; i++) {
        const struct history_mark *m = &h->marks[i];
        fprintf(out,
                "<tr><td class=\"n\">%s</td><td class=\"n\">%d</td><td class=\"n\">%s</td>"
                "<td%s>",
                duration(m->at_s - h->first_s, text), m->generation, node_of(m, node),
                m->is_trouble ? " class=\"bad\"" : "");
        co_escape_html(m->text, out);
        fputs("</td></tr>\n", out);
    }
    fputs("</table>\n", out);
    if (h->n_marks > HISTORY_PAGE_LINES)
        fprintf(out, "<p class=\"note\">%zu more are not shown.</p>\n",
                h->n_marks - HISTORY_PAGE_LINES);
}

/* --- A running job --- */

/* Replaces the body by that of a later page. Where ddprun does not answer, what was shown last
 * stays, with a line that explains it (body.gone). */
static const char script[] =
    "const again=()=>setTimeout(look,2000);async function look(){try{const r=await fetch("
    "location.href,{cache:\"no-store\"});if(!r.ok)throw r.status;const d=new DOMParser()."
    "parseFromString(await r.text(),\"text/html\");document.body.replaceWith(d.body)}catc"
    "h(e){document.body.className=\"gone\"}again()}again()";

/* The only script that a browser runs for the page: the hash of the text above, in base64. The test
 * of the page computes it. */
#define SCRIPT_SHA256 "99rFpuY2GRI32jUexTuaqy2UFhr1LlrIz2evFvkq26o="

static void print_head(const struct history *h, bool is_live, FILE *out)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'",
          out);
    if (is_live)
        fputs("; connect-src 'self'; script-src 'sha256-" SCRIPT_SHA256 "'", out);
    fputs("\">\n<title>Job ", out);
    co_escape_html(h->job, out);
    fprintf(out, "</title>\n<style>%s</style>", style);
    if (is_live)
        fprintf(out, "<script>%s</script>", script);
    fputs("</head>\n<body>\n", out);
}

int history_page_print(const struct history *h, const char *version,
                       const struct history_live *live, FILE *out)
{
    double span_s = h->last_s - h->first_s;
    const struct scale s = {.first_s = h->first_s, .span_s = span_s > 0.001 ? span_s : 0.001};
    print_head(h, live != NULL, out);
    print_summary(h, out);
    if (live != NULL)
        live->print(live->arg, out);
    print_goodput(h, out);
    print_timeline(h, &s, out);
    print_steps(h, &s, out);
    if (print_failures(h, out) < 0)
        return -ENOMEM;
    print_marks(h, out);
    print_notes(h, out);
    fputs(live != NULL ? "<p class=\"note\">Made by ddprun " : "<p class=\"note\">Made by ddpctl ",
          out);
    co_escape_html(version, out);
    fputs(live != NULL ? ".</p>\n</body></html>\n" : " report.</p>\n</body></html>\n", out);
    return ferror(out) != 0 ? -EIO : 0;
}
