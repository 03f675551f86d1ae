#include "hang_proc.h"

#include "common/scope.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* returns whether there is anything */
static bool read_text(pid_t pid, const char *name, char *text, size_t n)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd >= 0 ? read(fd, text, n - 1) : 0;
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

char hang_proc_state(const char *stat_text)
{
    const char *name_end = strrchr(stat_text, ')'); /* the name may hold anything */
    if (name_end == NULL || name_end[1] != ' ' || name_end[2] == '\0')
        return '?';
    return name_end[2];
}

void hang_proc_read(pid_t pid, struct hang_proc *ret)
{
    char text[512];
    *ret = (struct hang_proc){.state = '?'};
    if (read_text(pid, "stat", text, sizeof text))
        ret->state = hang_proc_state(text);
    if (!read_text(pid, "wchan", text, sizeof text) || text[0] == '0')
        return; /* it runs, or we may not know */
    snprintf(ret->place, sizeof ret->place, "%.*s", (int)strcspn(text, " \n"), text);
}

char *hang_proc_text(const struct hang_proc *p, char *buf, size_t n)
{
    static const struct {
        char state;
        const char *text;
    } states[] = {{'R', "runs"},
                  {'S', "sleeps"},
                  {'D', "sleeps and cannot be woken"},
                  {'T', "is stopped"},
                  {'t', "is stopped by a debugger"},
                  {'Z', "has ended"}};
    const char *text = "cannot be looked at";
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (states[i].state == p->state)
            text = states[i].text;
    const bool has_place = p->place[0] != '\0' && (p->state == 'S' || p->state == 'D');
    snprintf(buf, n, "%s%s%s", text, has_place ? " in " : "", has_place ? p->place : "");
    return buf;
}
