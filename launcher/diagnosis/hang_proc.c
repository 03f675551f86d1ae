#include "hang_proc.h"

#include "common/process.h"

#include <stdio.h>
#include <string.h>

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
    if (co_process_read(pid, "stat", text, sizeof text) > 0)
        ret->state = hang_proc_state(text);
    if (co_process_read(pid, "wchan", text, sizeof text) <= 0 || text[0] == '0')
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
