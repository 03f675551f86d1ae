/* status.c - failures on their way out of the library: status, and a text per thread. */
#include "group.h"

#include "common/error.h"
#include "process.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

static _Thread_local char last_error[CO_ERROR_TEXT_BYTES];
static _Thread_local int last_status;
static _Thread_local bool is_apart;  /* the group of this thread's last call */
static atomic_int process_rank = -1; /* for ddp_fatal(), which is given no group */

void rt_set_rank(int rank)
{
    atomic_store(&process_rank, rank);
}

const char *ddp_strerror(int status)
{
    static const struct {
        int status;
        const char *name;
    } names[] = {
        {DDP_OK, "DDP_OK"},
        {DDP_RETRY, "DDP_RETRY"},
        {DDP_EINVAL, "DDP_EINVAL"},
        {DDP_ENOMEM, "DDP_ENOMEM"},
        {DDP_ESYSTEM, "DDP_ESYSTEM"},
        {DDP_EENV, "DDP_EENV"},
        {DDP_ETIMEOUT, "DDP_ETIMEOUT"},
        {DDP_EMISMATCH, "DDP_EMISMATCH"},
        {DDP_EPEER, "DDP_EPEER"},
        {DDP_EUNSUPPORTED, "DDP_EUNSUPPORTED"},
        {DDP_ENOTFINITE, "DDP_ENOTFINITE"},
        {DDP_ERESPAWN, "DDP_ERESPAWN"},
        {DDP_EPROGRAM, "DDP_EPROGRAM"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].status == status)
            return names[i].name;
    return "DDP_E?";
}

const char *ddp_last_error(void)
{
    return last_error;
}

int rt_fail(int status, const char *format, ...)
{
    char text[sizeof last_error]; /* an argument may be ddp_last_error() itself */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(last_error, text, sizeof text);
    last_status = status;
    if ((status == DDP_EPEER || (status == DDP_RETRY && process_may_go_on())) && !is_apart)
        process_lose_peer();
    return status;
}

int rt_fail_null(const char *call, const char *what)
{
    return rt_fail(DDP_EINVAL, "%s: %s is NULL", call, what);
}

int rt_fail_returned(const char *what, int status)
{
    const char *name = ddp_strerror(status);
    const bool has_name = strcmp(name, "DDP_E?") != 0, has_text = last_error[0] != '\0';
    if (has_text && status == last_status)
        return status;
    return rt_fail(status, "%s returned %d%s%s%s%s%s", what, status, has_name ? " (" : "",
                   has_name ? name : "", has_name ? ")" : "",
                   has_text ? "; the last call that failed: " : "", last_error);
}

void rt_forget(void)
{
    last_error[0] = '\0';
    last_status = DDP_OK;
}

int rt_broken(void)
{
    return process_may_go_on() && !is_apart ? DDP_RETRY : DDP_EPEER;
}

bool rt_set_apart(bool apart)
{
    const bool was_apart = is_apart;
    is_apart = apart;
    return was_apart;
}

static int status_of(int code)
{
    static const int codes[][2] = {
        {-EINVAL, DDP_EINVAL},         {-ENOMEM, DDP_ENOMEM},       {-ETIMEDOUT, DDP_ETIMEOUT},
        {-ENOTRECOVERABLE, DDP_EPEER}, {-EPROTO, DDP_EMISMATCH},    {-ENOTSUP, DDP_EUNSUPPORTED},
        {-ENOEXEC, DDP_EENV},          {-EOWNERDEAD, DDP_ERESPAWN},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i][0] == code)
            return codes[i][1];
    return code == -ECONNRESET ? rt_broken() : DDP_ESYSTEM;
}

int rt_return(int code, const struct co_error *err)
{
    if (code == 0)
        return DDP_OK;
    if (err != NULL && err->text[0] != '\0')
        return rt_fail(status_of(code), "%s", err->text);
    return rt_fail(status_of(code), "%s", strerror(-code));
}

int rt_return_from(const char *name, int code, struct co_error *err)
{
    if (code != 0)
        co_fail_in(err, "%s", name);
    return rt_return(code, err);
}

/* "ddp_init: ...", where a program passes the name of the call that failed. */
static bool begins_with_call(const char *text, const char *call)
{
    const size_t n = strlen(call);
    return strncmp(text, call, n) == 0 && (text[n] == ':' || text[n] == '(');
}

void ddp_fatal(const char *what)
{
    int rank = atomic_load(&process_rank);
    const char *name = what != NULL ? what : "ddp_fatal";
    char label[24] = "";
    if (begins_with_call(last_error, name))
        name = "";
    if (rank >= 0) /* else it failed before it knew which rank it is */
        snprintf(label, sizeof label, "[rank %d] ", rank);
    fprintf(stderr, "%slibddp: %s%s%s\n", label, name, /* one write: ranks share stderr */
            name[0] != '\0' && last_error[0] != '\0' ? ": " : "", last_error);
    if (last_status == DDP_ERESPAWN) { /* what runs at exit may wait for the device forever */
        fflush(NULL);
        _exit(EX_TEMPFAIL);
    }
    exit(EXIT_FAILURE);
}

void ddp_log0(const struct ddp_group *g, const char *format, ...)
{
    if (g == NULL || format == NULL || g->rank != 0)
        return;
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    fflush(stdout);
}
