#include "wait_line.h"

#include "common/clock.h"
#include "rendezvous/membership/message.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void add_to(char *text, const char *format, va_list args)
{
    size_t n = strlen(text);
    vsnprintf(text + n, WAIT_LINE_BYTES - n, format, args);
}

__attribute__((format(printf, 2, 3))) static void add_words(struct wait_text *t, const char *format,
                                                            ...)
{
    va_list args;
    va_start(args, format);
    add_to(t->key, format, args);
    va_end(args);
    va_start(args, format);
    add_to(t->line, format, args);
    va_end(args);
}

__attribute__((format(printf, 2, 3))) static void add_time(struct wait_text *t, const char *format,
                                                           ...)
{
    va_list args;
    va_start(args, format);
    add_to(t->line, format, args);
    va_end(args);
}

/* ", 12 s of 600 s" */
static void add_times(struct wait_text *t, uint64_t elapsed_ms, uint64_t left_ms)
{
    add_time(t, ", %" PRIu64 " s", elapsed_ms / 1000);
    if (left_ms != CO_NEVER_MS)
        add_time(t, " of %" PRIu64 " s", (elapsed_ms + left_ms) / 1000);
}

static void add_names(struct wait_text *t, const struct message_progress *p)
{
    for (uint32_t i = 0; i < p->n_names; i++)
        add_words(t, "%s %s", i == 0 ? ":" : "", p->names[i]);
    if (p->n_names > 0 && p->n_all_names > p->n_names)
        add_words(t, " and %" PRIu32 " more", p->n_all_names - p->n_names);
}

void wait_text_seek(struct wait_text *t, const char *where, const char *why, uint64_t elapsed_ms,
                    uint64_t left_ms)
{
    t->line[0] = t->key[0] = '\0';
    add_words(t, "waiting for the rendezvous endpoint %s", where);
    add_times(t, elapsed_ms, left_ms);
    if (why[0] != '\0')
        add_words(t, ": %s", why);
}

void wait_text_progress(struct wait_text *t, const struct message_progress *p)
{
    const uint32_t n_missing = p->n_wanted > p->n_here ? p->n_wanted - p->n_here : 0;
    uint64_t left_ms = p->left_ms;
    t->line[0] = t->key[0] = '\0';
    switch (p->wait) {
    case MESSAGE_WAIT_NODES:
        add_words(t, "waiting for %" PRIu32 " of %" PRIu32 " nodes", n_missing, p->n_wanted);
        break;
    case MESSAGE_WAIT_WINDOW:
        add_words(t, "%" PRIu32 " node%s joined, waiting for up to %" PRIu32 " more", p->n_here,
                  p->n_here == 1 ? "" : "s", n_missing);
        break;
    case MESSAGE_WAIT_STORE:
        add_words(t, "waiting for the store to open");
        break;
    case MESSAGE_WAIT_STOP:
        add_words(t, "waiting for %" PRIu32 " node%s to stop", p->n_all_names,
                  p->n_all_names == 1 ? "" : "s");
        left_ms = CO_NEVER_MS;
        break;
    case MESSAGE_WAIT_PAUSE:
        add_words(t, "waiting before the restart");
        break;
    case MESSAGE_WAIT_PLACE:
        add_words(t, "the job has all its nodes, this node is a spare");
        left_ms = CO_NEVER_MS;
        break;
    case MESSAGE_WAIT_CHECKPOINT:
        add_words(t, "waiting for the job's next checkpoint, to join it");
        break;
    case MESSAGE_WAIT_HEALTH:
        add_words(t, "waiting for %" PRIu32 " node%s to check %s health", p->n_all_names,
                  p->n_all_names == 1 ? "" : "s", p->n_all_names == 1 ? "its" : "their");
        left_ms = CO_NEVER_MS;
        break;
    case MESSAGE_WAIT_NOTHING:
    case MESSAGE_N_WAITS:
        return;
    }
    add_times(t, p->elapsed_ms, left_ms);
    add_names(t, p);
}

void wait_text_unsaid(struct wait_text *t, const char *option)
{
    add_words(t, "; without %s, only nodes on this machine can join", option);
}

enum wait_news wait_line_look(struct wait_line *w, const struct wait_text *t, uint64_t now_ms)
{
    if (t->line[0] == '\0')
        return WAIT_NOTHING;
    if (w->shown_ms != 0 && strcmp(w->key, t->key) == 0 &&
        now_ms - w->shown_ms < WAIT_LINE_EVERY_MS)
        return WAIT_TIMES;
    snprintf(w->key, sizeof w->key, "%s", t->key);
    w->shown_ms = now_ms;
    return WAIT_CHANGED;
}
