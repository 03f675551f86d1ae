/* payload.h - the ddprun that is sent to hosts where none is installed: ddprun-static, as a whole
 * in memory, and what the host is told of it. What the host does with it: payload/receive.sh. */
#ifndef DDP_LAUNCHER_REMOTE_PAYLOAD_H
#define DDP_LAUNCHER_REMOTE_PAYLOAD_H

#include <stddef.h>
#include <stdint.h>

struct co_error;

enum {
    PAYLOAD_MAX_BYTES = 64 << 20,
    PAYLOAD_DIGEST_BYTES = 65, /* SHA-256 in hexadecimal digits, with a NUL */
    PAYLOAD_NAME_BYTES = 64,
    PAYLOAD_NAME_DIGITS = 16,   /* of the digest, at its end */
    PAYLOAD_MACHINE_BYTES = 65, /* of struct utsname */
    PAYLOAD_SIZE_BYTES = 16,
    PAYLOAD_N_ARGUMENTS = 9, /* of the host's shell, with the NULL */
};

struct payload {
    uint8_t *bytes; /* owned */
    size_t n_bytes;
    char size[PAYLOAD_SIZE_BYTES]; /* n_bytes, in digits */
    char digest[PAYLOAD_DIGEST_BYTES];
    char
        name[PAYLOAD_NAME_BYTES]; /* of the folder that it lies in there: version, and a part of the
                                     digest */
    char machine[PAYLOAD_MACHINE_BYTES]; /* as uname(1) -m has it: ours */
};

/* Read the program: our own, if we are that one; else where plug-ins are (plugin_path.h).
 *
 * ret       payload_close() it
 * returns   0
 *           -ENOENT   it is not installed here; err says where it was looked for
 *           -EFBIG    PAYLOAD_MAX_BYTES
 *           -ENOEXEC  it is another version's, or no ddprun
 *           -ENOMEM, -EIO, -errno */
int payload_open(struct payload *ret, struct co_error *err);
void payload_close(struct payload *p); /* a zeroed one is fine */

/* launcher/remote/payload/receive.sh in one line, without quotes; made by the build
 * (launcher/remote/payload/pack.py). */
extern const char payload_script[];

/* What a host's sh is told, behind "sh": "-c", the script, its words.
 *
 * program   of ddprun where we are, which may be installed there, too; "": whatever is installed
 *           there does not count
 * to        texts are borrowed from p, program and terms; NULL-terminated */
void payload_arguments(const struct payload *p, const char *program, const char *terms,
                       const char *to[PAYLOAD_N_ARGUMENTS]);

#endif
