#include "node_wait.h"

#include "launcher/job/job_spec.h"
#include "launcher/stdio/output.h"
#include "node_view.h"

#include "common/clock.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINE_MS = 1000 };

void node_wait_init(struct node_wait *w, const struct node_view *n, const char *daemon)
{
    *w = (struct node_wait){.node = n, .daemon = daemon, .on_terminal = isatty(STDERR_FILENO) != 0};
    uv_timer_init(n->loop, &w->timer);
    w->timer.data = w;
}

void node_wait_close(struct node_wait *w)
{
    uv_close((uv_handle_t *)&w->timer, NULL);
}

/* Another ddprun started this one through a launch channel: it reports what concerns the whole
 * job. */
static bool is_led(const struct node_wait *w)
{
    return w->node->spec->world.launch_fd != 0;
}

/* One line of the terminal, drawn over and over: it must not wrap. */
static void draw_line(struct node_wait *w)
{
    char line[WAIT_LINE_BYTES + 32];
    struct winsize size = {0};
    int n = snprintf(line, sizeof line, "ddprun: note: %s", w->text.line);
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 && n >= size.ws_col)
        line[size.ws_col - 1] = '\0';
    output_draw(w->node->output, line);
}

static void print_wait(struct node_wait *w, const struct message_progress *p)
{
    const struct job_world *world = &w->node->spec->world;
    const bool joins = member_get_state(w->member) == MEMBER_JOINING;
    const uint64_t now_ms = co_now_ms(), elapsed_ms = now_ms - w->from_ms;
    const uint64_t end_ms =
        joins ? w->from_ms + world->start_timeout_ms : member_seek_end_ms(w->member);
    const bool seeks = joins || end_ms != CO_NEVER_MS;
    if (seeks)
        wait_text_seek(&w->text, w->daemon, w->trouble, elapsed_ms,
                       now_ms < end_ms ? end_ms - now_ms : 0);
    else if (p != NULL)
        wait_text_progress(&w->text, p);
    else
        w->text.line[0] = '\0';
    if (world->unsaid != NULL && (seeks || (p != NULL && p->wait == MESSAGE_WAIT_NODES)))
        wait_text_unsaid(&w->text, world->unsaid);
}

static void show_wait(struct node_wait *w)
{
    const struct message_progress *p = member_get_progress(w->member);
    print_wait(w, p);
    enum wait_news news = wait_line_look(&w->shown, &w->text, co_now_ms());
    if (news == WAIT_CHANGED && p != NULL)
        events_wait(w->node->events, supervisor_generation(w->node->supervisor), p);
    if (is_led(w) && member_get_state(w->member) != MEMBER_JOINING)
        return; /* one node reports for all nodes what the roster waits for */
    if (news != WAIT_NOTHING && w->on_terminal)
        draw_line(w);
    else if (news == WAIT_CHANGED)
        node_say(w->node, CO_NOTE, "%s", w->text.line);
}

/* The reason why the ranks were stopped is reported together with what follows, or alone if that
 * takes long. */
static void say_cause(struct node_wait *w)
{
    if (w->cause[0] != '\0' && !is_led(w))
        node_say(w->node, CO_NOTE, "%s", w->cause);
    w->cause[0] = '\0';
}

static void on_line_timer(uv_timer_t *timer)
{
    struct node_wait *w = timer->data;
    say_cause(w);
    show_wait(w);
}

static bool waits(enum member_state state)
{
    return state == MEMBER_JOINING || state == MEMBER_WAITING || state == MEMBER_PARKED;
}

/* A wait that is short is not worth a word. */
void node_wait_begin(struct node_wait *w)
{
    w->from_ms = co_now_ms();
    w->shown = (struct wait_line){0};
    uv_update_time(w->node->loop);
    uv_timer_start(&w->timer, on_line_timer, LINE_MS, LINE_MS);
}

static void end_wait(struct node_wait *w)
{
    uv_timer_stop(&w->timer);
    output_draw(w->node->output, "");
}

void node_wait_note(struct node_wait *w, enum member_state from)
{
    enum member_state to = member_get_state(w->member);
    if (from == to)
        return;
    if (w->node->spec->verbose > 0)
        node_say(w->node, CO_NOTE, "member %s -> %s", member_state_name(from),
                 member_state_name(to));
    if (from == MEMBER_JOINING && to == MEMBER_WAITING && member_get_note(w->member)[0] != '\0')
        node_say(w->node, CO_WARNING,
                 "using the job's %s, set by its first node; this node's own is ignored",
                 member_get_note(w->member));
    if (waits(to) && !waits(from))
        node_wait_begin(w);
    else if (!waits(to) && waits(from))
        end_wait(w);
}

const char *node_wait_text(const struct node_wait *w)
{
    if (!waits(member_get_state(w->member)))
        return NULL;
    return w->text.line[0] != '\0' ? w->text.line : "waiting for other nodes";
}
