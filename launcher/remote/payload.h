/* payload.h - the ddprun that is sent to hosts where none is installed: ddprun-static, completely
 * in memory, and the arguments for the host. What the host does with it: payload/receive.sh. */
#ifndef DDP_LAUNCHER_REMOTE_PAYLOAD_H
#define DDP_LAUNCHER_REMOTE_PAYLOAD_H

#include <stddef.h>
#include <stdint.h>

struct co_error;

enum {
    PAYLOAD_MAX_BYTES = 64 << 20,
    PAYLOAD_DIGEST_BYTES = 65, /* SHA-256 in hexadecimal digits, with a NUL */
    PAYLOAD_NAME_BYTES = 64,
    PAYLOAD_NAME_DIGITS = 16,   /* digits of the digest, at its end */
    PAYLOAD_MACHINE_BYTES = 65, /* of struct utsname */
    PAYLOAD_SIZE_BYTES = 16,
    PAYLOAD_N_ARGUMENTS = 9, /* of the host's shell, with the NULL */
};

struct payload {
    uint8_t *bytes; /* owned */
    size_t n_bytes;
    char size[PAYLOAD_SIZE_BYTES]; /* n_bytes, in digits */
    char digest[PAYLOAD_DIGEST_BYTES];
    char name[PAYLOAD_NAME_BYTES];       /* name of its directory there: version, and a part of the
                                   * digest */
    char machine[PAYLOAD_MACHINE_BYTES]; /* as uname(1) -m has it: ours */
};

/* Read the program: our own, if we are that one; else where plug-ins are (plugin_path.h).
 *
 * ret       payload_close() it
 * returns   0
 *           -ENOENT   it is not installed here; err names the searched path
 *           -EFBIG    PAYLOAD_MAX_BYTES
 *           -ENOEXEC  it is another version's, or not a ddprun
 *           -ENOMEM, -EIO, -errno */
int payload_open(struct payload *ret, struct co_error *err);
void payload_close(struct payload *p); /* a zeroed one is fine */

/* launcher/remote/payload/receive.sh in one line, without quotes; made by the build
 * (launcher/remote/payload/pack.py). */
extern const char payload_script[];

/* The arguments for a host's sh, after "sh": "-c", the script, its words.
 *
 * p         a zeroed one: none is sent, and program is executed there
 * program   our own path of ddprun, which may also be installed there; "": whatever is installed
 *           there does not count
 * to        texts are borrowed from p, program and terms; NULL-terminated */
void payload_arguments(const struct payload *p, const char *program, const char *terms,
                       const char *to[PAYLOAD_N_ARGUMENTS]);

/* --- on the host: which copies are in use, and which may go --- */

/* The ddpruns that were sent to a host lie where launcher/remote/payload/receive.sh has put them:
 *
 *     SHELF/VERSION-DIGEST/ddprun
 *
 * Each one notes when it was started last, by the time of its file, and holds a lock on that while
 * it runs; so hosts that share the shelf know of each other's. Nothing here fails: what cannot be
 * done is left for another start. */

#define PAYLOAD_SHELF_KEEPS  3              /* that were started last, ours among them ... */
#define PAYLOAD_SHELF_IDLE_S (24 * 60 * 60) /* ... and those started since then */

/* Note that this program is in use, if it was sent.
 *
 * program   its path; absolute
 * returns   a descriptor, close-on-exec, which marks it until it is closed; -1: it was not sent */
int payload_cache_hold(const char *program);

/* Remove those that no process runs, except those that are kept. One that runs on this host stays,
 * whether it holds its lock or not.
 *
 * program   as above
 * held_fd   what it holds */
void payload_cache_tidy(const char *program, int held_fd);

#endif
