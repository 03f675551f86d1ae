/* parcel.h - the ddprun that is sent to hosts where none is installed: ddprun-static, as a whole in
 * memory, and what the host is told of it. What the host does with it: parcel/take.sh. */
#ifndef DDP_LAUNCHER_PARCEL_H
#define DDP_LAUNCHER_PARCEL_H

#include <stddef.h>
#include <stdint.h>

struct co_error;

enum {
    PARCEL_MAX_BYTES = 64 << 20,
    PARCEL_DIGEST_BYTES = 65, /* SHA-256 in hexadecimal digits, with a NUL */
    PARCEL_NAME_BYTES = 64,
    PARCEL_NAME_DIGITS = 16,   /* of the digest, at its end */
    PARCEL_MACHINE_BYTES = 65, /* of struct utsname */
    PARCEL_SIZE_BYTES = 16,
    PARCEL_N_ARGUMENTS = 9, /* of the host's shell, with the NULL */
};

struct parcel {
    uint8_t *bytes; /* owned */
    size_t n_bytes;
    char size[PARCEL_SIZE_BYTES]; /* n_bytes, in digits */
    char digest[PARCEL_DIGEST_BYTES];
    char name[PARCEL_NAME_BYTES]; /* of the folder that it lies in there: version, and a part of the
                                     digest */
    char machine[PARCEL_MACHINE_BYTES]; /* as uname(1) -m has it: ours */
};

/* Read the program: our own, if we are that one; else where plug-ins are (plugin_path.h).
 *
 * ret       parcel_close() it
 * returns   0
 *           -ENOENT   it is not installed here; err says where it was looked for
 *           -EFBIG    PARCEL_MAX_BYTES
 *           -ENOEXEC  it is another version's, or no ddprun
 *           -ENOMEM, -EIO, -errno */
int parcel_open(struct parcel *ret, struct co_error *err);
void parcel_close(struct parcel *p); /* a zeroed one is fine */

/* What a host's sh is told, behind "sh": "-c", the script, its words.
 *
 * program   of ddprun where we are, which may be installed there, too; "": whatever is installed
 *           there does not count
 * to        texts are borrowed from p, program and terms; NULL-terminated */
void parcel_arguments(const struct parcel *p, const char *program, const char *terms,
                      const char *to[PARCEL_N_ARGUMENTS]);

#endif
