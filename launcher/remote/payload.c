#include "payload.h"

#include "launch_channel.h"
#include "launcher/platform/linkage.h"
#include "launcher/platform/plugin_path.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef DDPRUN_VERSION
#error "the build gives the version"
#endif

static int read_all(int fd, const char *path, struct payload *p, struct co_error *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return co_fail(err, -errno, "cannot look at '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > PAYLOAD_MAX_BYTES)
        return co_fail(err, -EFBIG, "'%s' is no program of 1 to %d bytes", path, PAYLOAD_MAX_BYTES);
    p->n_bytes = (size_t)st.st_size;
    p->bytes = malloc(p->n_bytes);
    if (p->bytes == NULL)
        return co_fail(err, -ENOMEM, "no memory for '%s'", path);
    for (size_t got = 0; got < p->n_bytes;) {
        ssize_t n = read(fd, p->bytes + got, p->n_bytes - got);
        if (n == 0 || (n < 0 && errno != EINTR))
            return co_fail(err, n < 0 ? -errno : -EIO, "cannot read '%s' to its end", path);
        got += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static void describe(struct payload *p)
{
    unsigned char digest[crypto_hash_sha256_BYTES];
    struct utsname us;
    crypto_hash_sha256(digest, p->bytes, p->n_bytes);
    co_print_hex(digest, sizeof digest, p->digest);
    snprintf(p->name, sizeof p->name, "%.40s-%.*s", DDPRUN_VERSION, PAYLOAD_NAME_DIGITS, p->digest);
    snprintf(p->size, sizeof p->size, "%zu", p->n_bytes);
    snprintf(p->machine, sizeof p->machine, "%s", uname(&us) == 0 ? us.machine : "");
}

/* Another one would be refused by each host that it was sent to. */
static int check_terms(const struct payload *p, const char *path, struct co_error *err)
{
    const char *terms = launch_terms_in(p->bytes, p->n_bytes);
    if (terms == NULL)
        return co_fail(err, -ENOEXEC, "'%s' is no ddprun", path);
    if (strcmp(terms, launch_terms()) != 0)
        return co_fail(err, -ENOEXEC,
                       "'%s' is ddprun %.64s, and this one is %s: install both again", path, terms,
                       launch_terms());
    return 0;
}

static int fail_to_open(const char *path, struct co_error *err)
{
    const char *what_helps = errno == ENOENT ? ": build ddprun with -Dstatic_program=enabled" : "";
    return co_fail(err, -errno, "cannot read '%s': %s%s, or use --bcast never", path,
                   strerror(errno), what_helps);
}

int payload_open(struct payload *ret, struct co_error *err)
{
    struct payload p = {0};
    char path[PATH_MAX] = "/proc/self/exe";
    int rc = linkage_is_static() ? 0 : plugin_path_find("ddprun-static", path);
    if (rc < 0)
        return co_fail(err, rc, "cannot tell where ddprun-static is: %s", strerror(-rc));
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return fail_to_open(path, err);
    rc = read_all(fd, path, &p, err) ?: check_terms(&p, path, err);
    if (rc < 0) {
        payload_close(&p);
        return rc;
    }
    describe(&p);
    *ret = p;
    return 0;
}

void payload_close(struct payload *p)
{
    free(p->bytes);
    *p = (struct payload){0};
}

void payload_arguments(const struct payload *p, const char *program, const char *terms,
                       const char *to[PAYLOAD_N_ARGUMENTS])
{
    const char *const words[PAYLOAD_N_ARGUMENTS] = {
        "-c", payload_script, "ddprun", program, terms, p->name, p->size, p->digest, NULL};
    memcpy(to, words, sizeof words);
}
