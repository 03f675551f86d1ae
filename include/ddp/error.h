/* error.h - what a call of libddp returns, and the text of its failure.
 *
 * Every public call that can fail returns an int: 0, a positive notice (DDP_RETRY), or a negative
 * enum ddp_status. The text of a failure, one line with what failed, where and what to try next, is
 * kept per thread until the thread's next failure.
 *
 * NULL where a call needs a handle or memory gives DDP_EINVAL, and the text names the call. Of the
 * calls that return no status those that return a rank, a number of ranks or an epoch return
 * DDP_EINVAL, which is negative; others return 0, NULL or false, or do nothing. */
#ifndef DDP_ERROR_H
#define DDP_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

enum ddp_status {
    DDP_OK = 0,
    DDP_RETRY = 1,         /* the members of the job changed: return it to ddp_run() */
    DDP_EINVAL = -1,       /* an argument is out of its stated bounds */
    DDP_ENOMEM = -2,       /* out of memory, or out of shared memory */
    DDP_ESYSTEM = -3,      /* a system call failed; the text has its name and the reason */
    DDP_EENV = -4,         /* the environment (RANK, WORLD_SIZE, ...) is missing or contradictory */
    DDP_ETIMEOUT = -5,     /* a deadline passed; the text names the missing ranks */
    DDP_EMISMATCH = -6,    /* ranks called different collectives; the text names both sides */
    DDP_EPEER = -7,        /* a rank died or left while others needed it */
    DDP_EUNSUPPORTED = -8, /* not possible with this back end, or in this build */
    DDP_ENOTFINITE = -9,   /* a NaN or an infinity, and check_finite was requested */
    DDP_ERESPAWN = -10,    /* this process has lost its device: it has to exit, and another one must
                              replace it */
    DDP_EPROGRAM = -11     /* a failure of the program itself: see ddp_fail() */
};

/* The name of a status, "DDP_EPEER" for instance; "DDP_E?" for an unknown one. Never NULL. */
const char *ddp_strerror(int status);

/* The text of this thread's last failure; "" before the first one. Valid until the next failing
 * call of the same thread. Never NULL. */
const char *ddp_last_error(void);

/* This rank fails by itself: ddprun and torchrun are to name it and `text` as the cause, although
 * peers may end before it because it is gone. Call it where the failure is, before the process
 * leaves the group or calls exit(); then end with a status other than 0. For instance in the
 * function that ddp_run() calls:
 *
 *     if (isnan(loss))
 *         return ddp_fail("the loss is not a number: lower the learning rate");
 *
 * text      becomes ddp_last_error(); it is written to the file that the launcher has named in
 *           TORCHELASTIC_ERROR_FILE, if it has, as torch's @record writes an exception there.
 *           NULL: "the program failed". Longer than 4000 bytes: cut
 * returns   DDP_EPROGRAM, always */
int ddp_fail(const char *text);

/* Print "[rank R] libddp: WHAT: TEXT" on stderr, TEXT being ddp_last_error(), and exit with status
 * 1. Without WHAT if it is the name of the call with which TEXT begins; without TEXT if no call of
 * this thread has failed. If this thread's last failure was DDP_ERESPAWN: with status 75, and
 * without the functions of atexit(), which may block in the device. */
#if defined(__GNUC__)
__attribute__((noreturn))
#endif
void ddp_fatal(const char *what);

#ifdef __cplusplus
}
#endif
#endif
