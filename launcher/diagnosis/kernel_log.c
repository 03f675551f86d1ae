#include "kernel_log.h"

#include "common/scope.h"
#include "common/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    RECORD_BYTES = 8192, /* the kernel's own limit */
    MAX_RECORDS = 20000, /* of one call: no log is that long */
    LEVEL_WARNING = 4,
    LEVELS = 8,
};

/* In messages of any level. */
static const char *const words[] = {
    "segfault",
    "traps:",
    "general protection",
    "Out of memory",
    "oom-kill",
    "NVRM",
    "Xid",
    "amdgpu",
    "I/O error",
    "not responding",
    "blocked for",
    "Link is Down",
    "link down",
    "Hardware Error",
    "mlx5",
};

static bool has_word(const char *text)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(text, words[i]) != NULL)
            return true;
    return false;
}

/* The facility of messages of the kernel itself is 0. */
static bool is_of_failure(unsigned priority, const char *text)
{
    return priority < LEVELS && (priority <= LEVEL_WARNING || has_word(text));
}

void kernel_log_add(struct kernel_log *log, const char *record, size_t n)
{
    struct kernel_log_line line;
    unsigned priority;
    char comma;
    const char *text = memchr(record, ';', n);
    char head[64];
    const size_t n_head = text != NULL ? (size_t)(text - record) : sizeof head;
    if (n_head >= sizeof head)
        return;
    *(char *)mempcpy(head, record, n_head) = '\0';
    if (sscanf(head, "%u,%*u,%" SCNu64 "%c", &priority, &line.us, &comma) != 3 || comma != ',')
        return;
    const size_t n_left = n - n_head - 1;
    const char *end = memchr(text + 1, '\n', n_left);
    const size_t n_text = end != NULL ? (size_t)(end - text - 1) : n_left;
    const size_t n_kept = n_text < sizeof line.text - 1 ? n_text : sizeof line.text - 1;
    *(char *)mempcpy(line.text, text + 1, n_kept) = '\0';
    co_utf8_clean(line.text, n_kept);
    if (is_of_failure(priority, line.text))
        log->lines[log->n++ % KERNEL_LOG_LINES] = line;
}

void kernel_log_print(const struct kernel_log *log, FILE *out)
{
    const size_t first = log->n > KERNEL_LOG_LINES ? log->n - KERNEL_LOG_LINES : 0;
    if (log->is_lossy)
        fputs("(the kernel has dropped earlier messages)\n", out);
    if (first > 0)
        fprintf(out, "(%zu earlier messages are left out)\n", first);
    for (size_t i = first; i < log->n; i++) {
        const struct kernel_log_line *line = &log->lines[i % KERNEL_LOG_LINES];
        fprintf(out, "[%" PRIu64 ".%06" PRIu64 "] %s\n", line->us / 1000000, line->us % 1000000,
                line->text);
    }
}

int kernel_log_open(const char *root)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/dev/kmsg", root);
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || lseek(fd, 0, SEEK_END) < 0)
        return -errno;
    return co_take_fd(&fd);
}

/* A read gives one record; EPIPE means that some were overwritten before they were read. */
void kernel_log_read(int fd, struct kernel_log *ret)
{
    char record[RECORD_BYTES];
    for (int i = 0; i < MAX_RECORDS; i++) {
        const ssize_t n = read(fd, record, sizeof record);
        if (n > 0)
            kernel_log_add(ret, record, (size_t)n);
        else if (n < 0 && errno == EPIPE)
            ret->is_lossy = true;
        else if (n == 0 || errno != EINTR)
            return;
    }
}
