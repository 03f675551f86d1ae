/* status.c - failures on their way out of the library: status, and a text per thread. */
#include "status.h"

#include "common/error.h"
#include "group.h"
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
    switch (status) {
    case DDP_OK:
        return "DDP_OK";
    case DDP_RETRY:
        return "DDP_RETRY";
    case DDP_EINVAL:
        return "DDP_EINVAL";
    case DDP_ENOMEM:
        return "DDP_ENOMEM";
    case DDP_ESYSTEM:
        return "DDP_ESYSTEM";
    case DDP_EENV:
        return "DDP_EENV";
    case DDP_ETIMEOUT:
        return "DDP_ETIMEOUT";
    case DDP_EMISMATCH:
        return "DDP_EMISMATCH";
    case DDP_EPEER:
        return "DDP_EPEER";
    case DDP_EUNSUPPORTED:
        return "DDP_EUNSUPPORTED";
    case DDP_ENOTFINITE:
        return "DDP_ENOTFINITE";
    case DDP_ERESPAWN:
        return "DDP_ERESPAWN";
    default:
        return "DDP_E?";
    }
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
    switch (code) {
    case -EINVAL:
        return DDP_EINVAL;
    case -ENOMEM:
        return DDP_ENOMEM;
    case -ETIMEDOUT:
        return DDP_ETIMEOUT;
    case -ECONNRESET:
        return rt_broken();
    case -ENOTRECOVERABLE:
        return DDP_EPEER;
    case -EPROTO:
        return DDP_EMISMATCH;
    case -ENOTSUP:
        return DDP_EUNSUPPORTED;
    case -ENOEXEC:
        return DDP_EENV;
    case -EOWNERDEAD:
        return DDP_ERESPAWN;
    default:
        return DDP_ESYSTEM;
    }
}

int rt_return(int code, const struct co_error *err)
{
    if (code == 0)
        return DDP_OK;
    if (err != NULL && err->text[0] != '\0')
        return rt_fail(status_of(code), "%s", err->text);
    return rt_fail(status_of(code), "%s", strerror(-code));
}

void ddp_fatal(const char *what)
{
    int rank = atomic_load(&process_rank);
    if (rank >= 0)
        fprintf(stderr, "rank %d: %s: %s\n", rank, what, last_error);
    else /* it failed before it knew which rank it is */
        fprintf(stderr, "%s: %s\n", what, last_error);
    if (last_status == DDP_ERESPAWN) { /* what runs at exit may wait for the device for ever */
        fflush(NULL);
        _exit(EX_TEMPFAIL);
    }
    exit(EXIT_FAILURE);
}

void ddp_log0(const struct ddp_group *g, const char *format, ...)
{
    if (g->rank != 0)
        return;
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    fflush(stdout);
}
