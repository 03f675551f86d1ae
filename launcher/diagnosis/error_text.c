/* The lines are read once, from the top. take_line() sees in which part of the text a line is: the
 * frames of a traceback, the message after them, or neither; a block is one exception, or a chain
 * of them. Read error_text_judge() first. */
#include "error_text.h"

#include <ctype.h>
#include <string.h>

enum {
    MESSAGE_LINES = 8, /* of an exception's message that are looked at */
    LAST_LINES = 8,    /* of a text without an exception */
};

/* --- Phrases --- */

/* Both parts are in the message, in lower case; a phrase of one part has no second. */
struct phrase {
    const char *part, *other;
};

static const struct phrase phrases[] = {
    /* gloo, and errno's own text, which all of them print */
    {"connection closed by peer", NULL},
    {"connection reset by", NULL},
    {"software caused connection abort", NULL},
    {"gloo/transport", "broken pipe"},
    {"gloo/transport", "socket closed"},
    {"gloo/transport", "timed out"},
    {"gloo connectfullmesh failed", NULL},
    {"application timeout caused pair closure", NULL},
    {"in monitoredbarrier", NULL},
    {"reached monitoredbarrier, but", NULL},
    /* NCCL */
    {"ncclremoteerror", NULL},
    {"remote process exit", NULL}, /* "... exiting prematurely", "... exited or there was ..." */
    {"nccl communicator was aborted", NULL},
    {"watchdog caught collective operation timeout", NULL},
    {"closed by remote peer", NULL},
    /* TCPStore */
    {"did the remote server shutdown or crash", NULL},
    {"remote peer closed the connection", NULL},
    {"failed to recv, got 0 bytes", NULL},
    {"failed on socketimpl", NULL},
    {"clients joined", "timed out after"},
    {"wait timeout after", "keys:"},
    /* libddp */
    {"after a peer was lost", NULL},
    {"lost its peers", NULL},
    {"left the job while others needed it", NULL},
    {"rank ", " died"},
    /* Open MPI, MPICH, UCX */
    {"communication peer process has unexpectedly disconnected", NULL},
    {"communication error with rank", NULL},
    {"mpi_err_proc_failed", NULL},
    {"mpix_err_proc_failed", NULL},
    {"transport retry count exceeded", NULL},
    {"ucx", "endpoint timeout"},
};

bool error_text_says_peer_lost(const char *message, size_t n)
{
    char lower[ERROR_TEXT_LINE_BYTES];
    if (n > sizeof lower)
        n = sizeof lower;
    for (size_t i = 0; i < n; i++)
        lower[i] = (char)tolower((unsigned char)message[i]);
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++) {
        const struct phrase *p = &phrases[i];
        if (memmem(lower, n, p->part, strlen(p->part)) != NULL &&
            (p->other == NULL || memmem(lower, n, p->other, strlen(p->other)) != NULL))
            return true;
    }
    return false;
}

/* --- Lines --- */

struct line {
    const char *at;
    size_t n;
};

static bool has(struct line l, const char *part)
{
    return memmem(l.at, l.n, part, strlen(part)) != NULL;
}

static bool begins(struct line l, const char *part)
{
    return l.n >= strlen(part) && memcmp(l.at, part, strlen(part)) == 0;
}

static struct line skip(struct line l, size_t n)
{
    return (struct line){l.at + n, l.n - n};
}

/* Of torch's "[rank1]: " and of libddp's "[rank 1] ". */
static size_t rank_label_bytes(struct line l)
{
    const char *end = begins(l, "[rank") ? memchr(l.at, ']', l.n) : NULL;
    if (end == NULL || !isdigit((unsigned char)end[-1]))
        return 0;
    const size_t n = (size_t)(end + 1 - l.at), n_colon = n < l.n && l.at[n] == ':';
    return n + n_colon < l.n && l.at[n + n_colon] == ' ' ? n + n_colon + 1 : 0;
}

/* Of a line that was drawn over the last drawing; without its rank's label. */
static struct line clean(struct line l)
{
    while (l.n > 0 && l.at[l.n - 1] == '\r')
        l.n--;
    const char *drawn = memrchr(l.at, '\r', l.n);
    if (drawn != NULL)
        l = skip(l, (size_t)(drawn + 1 - l.at));
    return skip(l, rank_label_bytes(l));
}

static struct line next_line(const char **at, const char *end)
{
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    const char *stop = newline != NULL ? newline : end;
    struct line l = {*at, (size_t)(stop - *at)};
    *at = newline != NULL ? newline + 1 : end;
    return clean(l);
}

/* --- Exceptions --- */

enum part { NOWHERE, IN_FRAMES, IN_MESSAGE };

struct reader {
    enum part part;
    int n_message;           /* lines of it so far */
    bool is_ignored;         /* the exception that is being read does not count */
    bool goes_on;            /* the next traceback is of the same chain */
    bool announces_ignored;  /* ... or one that Python ignores */
    bool is_first;           /* of its chain */
    struct error_text found; /* the last one */
};

static void begin_exception(struct reader *r, enum part part)
{
    r->is_ignored = r->announces_ignored;
    r->is_first = !r->goes_on;
    r->goes_on = r->announces_ignored = false;
    r->part = part;
    r->n_message = 0;
}

static bool counts(const struct reader *r)
{
    return r->is_first && !r->is_ignored;
}

static void take_message(struct reader *r, struct line l)
{
    r->found.n_after += r->n_message > 0;
    if (r->n_message++ == 0 && counts(r))
        r->found = (struct error_text){ERROR_OWN, true, 0, l.at, l.n};
    if (counts(r) && error_text_says_peer_lost(l.at, l.n))
        r->found.kind = ERROR_PEER_LOST;
}

/* The lines of a traceback that are not a message: indented, or the frame that some programs
 * draw. */
static bool is_frame(struct line l)
{
    return l.n == 0 || l.at[0] == ' ' || l.at[0] == '\t' || l.at[0] == '|' || l.at[0] == '+' ||
           (unsigned char)l.at[0] == 0xe2;
}

/* A message continues until a blank line, or a line of a log. */
static bool ends_message(const struct reader *r, struct line l)
{
    return l.n == 0 || l.at[0] == '[' || r->n_message >= MESSAGE_LINES;
}

static bool begins_cpp(struct line l)
{
    return begins(l, "terminate called after throwing") || begins(l, "libc++abi: terminating");
}

/* If Python has printed an error of its own, a C++ exception that then ends the process comes from
 * a thread that waited for other ranks. */
static void take_cpp(struct reader *r, struct line l)
{
    if (r->found.kind == ERROR_OWN) {
        r->part = NOWHERE;
        return;
    }
    begin_exception(r, IN_MESSAGE);
    take_message(r, l);
}

static void take_line(struct reader *r, struct line l)
{
    if (has(l, "Traceback (most recent call last)")) {
        begin_exception(r, IN_FRAMES);
    } else if (begins_cpp(l)) {
        take_cpp(r, l);
    } else if (has(l, "During handling of the above exception, another exception occurred") ||
               has(l, "The above exception was the direct cause of the following exception")) {
        r->goes_on = true;
        r->part = NOWHERE;
    } else if (begins(l, "Exception ignored in") || begins(l, "Error in atexit")) {
        r->announces_ignored = true;
        r->part = NOWHERE;
    } else if (r->part == IN_FRAMES && !is_frame(l)) {
        r->part = IN_MESSAGE;
        take_message(r, l);
    } else if (r->part == NOWHERE || (r->part == IN_MESSAGE && ends_message(r, l))) {
        r->part = NOWHERE;
        r->found.n_after += l.n > 0 && !begins(l, "frame #") && !begins(l, "Exception raised from");
    } else if (r->part == IN_MESSAGE) {
        const char *what = memmem(l.at, l.n, "what():", 7);
        take_message(r, l);
        if (what != NULL && counts(r)) { /* it has more information than the line before */
            for (l = skip(l, (size_t)(what + 7 - l.at)); l.n > 0 && l.at[0] == ' ';
                 l = skip(l, 1)) {
            }
            r->found.line = l.at;
            r->found.n = l.n;
        }
    }
}

/* No exception: programs that print a line and exit. */
static struct error_text judge_last_lines(const char *bytes, size_t n)
{
    const char *end = bytes + n;
    for (int n_lines = 0; end > bytes && n_lines < LAST_LINES;) {
        const char *stop = end[-1] == '\n' ? end - 1 : end;
        const char *newline = memrchr(bytes, '\n', (size_t)(stop - bytes));
        const char *start = newline != NULL ? newline + 1 : bytes;
        struct line l = clean((struct line){start, (size_t)(stop - start)});
        if (error_text_says_peer_lost(l.at, l.n))
            return (struct error_text){ERROR_PEER_LOST, false, 0, l.at, l.n};
        n_lines += l.n > 0;
        end = start;
    }
    return (struct error_text){0};
}

struct error_text error_text_judge(const char *bytes, size_t n)
{
    struct reader r = {0};
    for (const char *at = bytes, *end = bytes + n; at < end;)
        take_line(&r, next_line(&at, end));
    return r.found.kind != ERROR_UNKNOWN ? r.found : judge_last_lines(bytes, n);
}
