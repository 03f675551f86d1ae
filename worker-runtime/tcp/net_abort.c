#include "net_abort.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void net_abort_set(struct net_abort *c, int code, const char *text)
{
    *c = (struct net_abort){.code = code};
    memcpy(c->text, text, strnlen(text, sizeof c->text - 1));
}

static bool is_errno(int code)
{
    return code < 0 && code > -4096;
}

static bool is_control(char c)
{
    return (unsigned char)c < ' ' || c == 0x7f;
}

void net_abort_check(struct net_abort *c)
{
    c->text[sizeof c->text - 1] = '\0';
    for (char *at = c->text; *at != '\0'; at++)
        if (is_control(*at))
            *at = '?';
    if (c->text[0] == '\0')
        snprintf(c->text, sizeof c->text, "the job is broken on another node");
    if (!is_errno(c->code))
        c->code = -ECONNRESET;
}
