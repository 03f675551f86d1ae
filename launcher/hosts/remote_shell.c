#include "remote_shell.h"

#include "host_list.h"
#include "launcher/platform/own_addresses.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { WORDS_MAX = 12 + WAY_ARGUMENTS_MAX };

/* Words and the text that they point to, in one block. */
struct words {
    size_t n, len;
    bool is_cut; /* not everything fit */
    char *list[WORDS_MAX + 1];
    char text[WAY_TEXT_BYTES];
};

__attribute__((format(printf, 2, 3))) static void put_word(struct words *w, const char *format, ...)
{
    va_list args;
    size_t left = sizeof w->text - w->len;
    char *word = w->text + w->len;
    va_start(args, format);
    const int n = vsnprintf(word, left, format, args);
    va_end(args);
    if ((size_t)n >= left || w->n == WORDS_MAX) {
        w->is_cut = true;
        return;
    }
    w->len += (size_t)n + 1;
    w->list[w->n++] = word;
}

static void add_bytes(struct words *w, const char *bytes, size_t n)
{
    if (n > sizeof w->text - w->len) {
        w->is_cut = true;
        return;
    }
    memcpy(w->text + w->len, bytes, n);
    w->len += n;
}

static void add_quoted(struct words *w, const char *word)
{
    bool is_plain = *word != '\0';
    for (const char *c = word; *c != '\0'; c++)
        is_plain = is_plain && (isalnum((unsigned char)*c) || strchr("/._+-", *c) != NULL);
    if (is_plain) {
        add_bytes(w, word, strlen(word));
        return;
    }
    add_bytes(w, "'", 1);
    for (const char *c = word; *c != '\0'; c++)
        if (*c == '\'')
            add_bytes(w, "'\\''", 4);
        else
            add_bytes(w, c, 1);
    add_bytes(w, "'", 1);
}

/* The shell there reads one word of ours. */
static void put_for_shell(struct words *w, const char *program, const char *const *arguments)
{
    w->list[w->n++] = w->text + w->len;
    add_quoted(w, program);
    for (; *arguments != NULL; arguments++) {
        add_bytes(w, " ", 1);
        add_quoted(w, *arguments);
    }
    add_bytes(w, "", 1);
}

/* A step of its own, which shares the node with others: what it may use is the allocation's. */
static void put_srun(struct words *w, const struct host *host)
{
    static const char *const words[] = {
        "srun",       "--nodes=1",       "--ntasks=1",           "--ntasks-per-node=1", "--overlap",
        "--mpi=none", "--cpu-bind=none", "--kill-on-bad-exit=0", "--unbuffered",        "--quiet"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        put_word(w, "%s", words[i]);
    put_word(w, "--nodelist=%s", host->name);
}

static void put_host(struct words *w, const struct remote_shell *way, const struct host *host)
{
    if (way->command == NULL) {
        uint64_t reach_s = (way->reach_ms + 999) / 1000;
        put_word(w, "ssh");
        put_word(w, "-x");
        put_word(w, "-oBatchMode=yes");
        put_word(w, "-oConnectTimeout=%" PRIu64, reach_s < 100000 ? reach_s : 100000);
        put_word(w, "-oServerAliveInterval=5");
        put_word(w, "-oServerAliveCountMax=3");
    }
    if (host->port != 0)
        put_word(w, "-p%u", host->port);
    put_word(w, "%s%s%s", host->user, host->user[0] != '\0' ? "@" : "", host->name);
}

int remote_shell_make(const struct remote_shell *way, const struct host *host, const char *program,
                      const char *const *arguments, char ***ret, struct co_error *err)
{
    struct words w = {.n = 0};
    char *const none[] = {NULL}, *const *first = none;
    if (host != NULL && !way->by_srun) {
        first = way->command != NULL ? way->command : none;
        put_host(&w, way, host);
        put_for_shell(&w, program, arguments);
    } else {
        if (host != NULL)
            put_srun(&w, host);
        put_word(&w, "%s", program);
        for (; *arguments != NULL; arguments++)
            put_word(&w, "%s", *arguments);
    }
    if (w.is_cut)
        return co_fail(err, -ENAMETOOLONG, "the path of the program to start is too long");
    *ret = co_join_words((char *const *const[]){first, w.list}, 2);
    return *ret != NULL ? 0 : co_fail(err, -ENOMEM, "out of memory");
}

/* --- this machine --- */

bool remote_shell_is_here(const struct remote_shell *way, const struct host *host)
{
    return !way->by_srun && host->user[0] == '\0' && host->port == 0 &&
           own_addresses_have(host->name);
}

/* --- why it failed --- */

/* The bytes of "error: " in front of a message of our own programs. */
static size_t label_len(const char *text, size_t len)
{
    for (int severity = CO_ERROR; severity <= CO_NOTE; severity++) {
        const char *name = co_severity_name((enum co_severity)severity);
        const size_t n = strlen(name);
        if (len > n + 2 && memcmp(text, name, n) == 0 && memcmp(text + n, ": ", 2) == 0)
            return n + 2;
    }
    return 0;
}

void remote_shell_complaint(const char *text, size_t len, const char *own, char *to, size_t n)
{
    size_t own_len = strlen(own), end = len;
    while (end > 0 && strchr(" \t\r\n", text[end - 1]) != NULL)
        end--;
    size_t start = end;
    while (start > 0 && text[start - 1] != '\n' && text[start - 1] != '\r')
        start--;
    if (end - start > own_len && memcmp(text + start, own, own_len) == 0) {
        start += own_len;
        start += label_len(text + start, end - start);
    }
    snprintf(to, n, "%.*s", (int)(end - start), end > start ? text + start : "");
    co_utf8_clean(to, strlen(to));
}

enum { SSH_FAILED = 255 };

bool remote_shell_was_lost(int status)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == SSH_FAILED;
}

bool remote_shell_was_unreached(int status, const char *complaint)
{
    static const char *const begins[] = {"ssh: Could not resolve hostname ",
                                         "ssh: connect to host "};
    if (!remote_shell_was_lost(status))
        return false;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(complaint, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}
