/* On the starting side, payload_open() reads ddprun-static, checks that it fits this ddprun
 * (check_terms()) and gives it a name; payload_arguments() are the words of the script that
 * receives it. On the host, payload_cache_hold() locks the copy that runs, and
 * payload_cache_tidy() removes old ones. Read payload_open() first, then payload_cache_tidy(). */
#include "payload.h"

#include "launch_channel.h"
#include "launcher/platform/linkage.h"
#include "launcher/platform/plugin_path.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "common/whole.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef DDPRUN_VERSION
#error "the build gives the version"
#endif

static int read_program(int fd, const char *path, struct payload *p, struct co_error *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return co_fail(err, -errno, "cannot stat '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > PAYLOAD_MAX_BYTES)
        return co_fail(err, -EFBIG, "'%s' is not a program of 1 to %d bytes", path,
                       PAYLOAD_MAX_BYTES);
    p->n_bytes = (size_t)st.st_size;
    p->bytes = malloc(p->n_bytes);
    if (p->bytes == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    ssize_t n = co_read_all(fd, p->bytes, p->n_bytes);
    return n == (ssize_t)p->n_bytes
               ? 0
               : co_fail(err, n < 0 ? (int)n : -EIO, "cannot read all of '%s'", path);
}

static void describe_payload(struct payload *p)
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
        return co_fail(err, -ENOEXEC, "'%s' is not a ddprun-static", path);
    if (strcmp(terms, launch_terms()) != 0)
        return co_fail(
            err, -ENOEXEC,
            "'%s' is ddprun %.64s, but this is ddprun %s; install both from the same build", path,
            terms, launch_terms());
    return 0;
}

int payload_open(struct payload *ret, struct co_error *err)
{
    struct payload p = {0};
    char path[PATH_MAX] = "/proc/self/exe";
    int rc = linkage_is_static() ? 0 : plugin_path_find("ddprun-static", path);
    if (rc < 0)
        return co_fail(err, rc, "cannot locate ddprun-static: %s", strerror(-rc));
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return co_fail(err, -errno, "cannot read '%s': %s%s", path, strerror(errno),
                       errno == ENOENT
                           ? "; build ddprun with -Dstatic_program=enabled, or use --bcast never"
                           : "");
    rc = read_program(fd, path, &p, err) ?: check_terms(&p, path, err);
    if (rc < 0) {
        payload_close(&p);
        return rc;
    }
    describe_payload(&p);
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

/* --- on the host: which copies are in use, and which may go --- */

enum { MAX_COPIES = 256 }; /* that are looked at */

static const char file_name[] = "ddprun";

struct copy {
    char name[PAYLOAD_NAME_BYTES];
    time_t used_s;
};

/* VERSION-DIGEST, as payload.c makes it. */
static bool is_name(const char *name, size_t len)
{
    const char *dash = memrchr(name, '-', len);
    if (dash == NULL || dash == name || len >= PAYLOAD_NAME_BYTES)
        return false;
    const size_t n_digits = (size_t)(name + len - dash - 1);
    return n_digits == PAYLOAD_NAME_DIGITS && strspn(dash + 1, "0123456789abcdef") >= n_digits;
}

/* Split SHELF/NAME/ddprun. returns false: it is not such a path */
static bool find_shelf(const char *program, char shelf[PATH_MAX], char name[PAYLOAD_NAME_BYTES])
{
    const char *file = strrchr(program, '/');
    if (file == NULL || strcmp(file + 1, file_name) != 0)
        return false;
    const char *slash = memrchr(program, '/', (size_t)(file - program));
    if (slash == NULL || slash == program || slash - program >= PATH_MAX ||
        !is_name(slash + 1, (size_t)(file - slash - 1)))
        return false;
    snprintf(shelf, PATH_MAX, "%.*s", (int)(slash - program), program);
    snprintf(name, PAYLOAD_NAME_BYTES, "%.*s", (int)(file - slash - 1), slash + 1);
    return true;
}

int payload_cache_hold(const char *program)
{
    char shelf[PATH_MAX], name[PAYLOAD_NAME_BYTES];
    if (!find_shelf(program, shelf, name))
        return -1;
    int fd = open(program, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    futimens(fd, NULL);
    flock(fd, LOCK_SH | LOCK_NB);
    return fd;
}

/* When it was started last; of one that has not come whole, when it began to come. */
static bool look_at_copy(int shelf_fd, const char *name, struct copy *ret)
{
    char path[PAYLOAD_NAME_BYTES + sizeof file_name];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", name, file_name);
    if (fstatat(shelf_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
        fstatat(shelf_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    snprintf(ret->name, sizeof ret->name, "%s", name);
    ret->used_s = st.st_mtime;
    return true;
}

/* returns   a descriptor that keeps others off it; -ENOENT: there is no program; else it is in use,
 *           or that is not known: -ETXTBSY here, -EWOULDBLOCK anywhere, -ENOLCK, ... */
static int claim(int folder_fd)
{
    co_autoclose_fd int fd = openat(folder_fd, file_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return -errno;
    return co_take_fd(&fd);
}

static void remove_copy(int shelf_fd, const char *name)
{
    int folder = openat(shelf_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = folder < 0 ? NULL : fdopendir(folder);
    if (entries == NULL) {
        if (folder >= 0)
            close(folder);
        return;
    }
    co_autoclose_fd int claimed = claim(folder);
    if (claimed >= 0 || claimed == -ENOENT) {
        for (const struct dirent *d; (d = readdir(entries)) != NULL;)
            unlinkat(folder, d->d_name, 0); /* also parts of one that did not arrive complete */
        unlinkat(shelf_fd, name, AT_REMOVEDIR);
    }
    closedir(entries);
}

static int compare_copies(const void *a, const void *b)
{
    const struct copy *one = a, *other = b;
    return one->used_s < other->used_s ? 1 : one->used_s > other->used_s ? -1 : 0;
}

/* returns how many, last used first */
static size_t find_others(DIR *entries, const char *ours, struct copy *ret)
{
    size_t n = 0;
    for (const struct dirent *d; n < MAX_COPIES && (d = readdir(entries)) != NULL;)
        if (is_name(d->d_name, strlen(d->d_name)) && strcmp(d->d_name, ours) != 0)
            n += look_at_copy(dirfd(entries), d->d_name, &ret[n]);
    qsort(ret, n, sizeof *ret, compare_copies);
    return n;
}

void payload_cache_tidy(const char *program, int held_fd)
{
    char shelf[PATH_MAX], name[PAYLOAD_NAME_BYTES];
    struct stat now; /* it was started just now, by the clock of the machine that has the files */
    struct copy *others = NULL;
    if (fstat(held_fd, &now) < 0 || !find_shelf(program, shelf, name))
        return;
    DIR *entries = opendir(shelf);
    if (entries != NULL)
        others = calloc(MAX_COPIES, sizeof *others);
    const size_t n = others != NULL ? find_others(entries, name, others) : 0;
    for (size_t i = PAYLOAD_SHELF_KEEPS - 1; i < n; i++)
        if (others[i].used_s < now.st_mtime - PAYLOAD_SHELF_IDLE_S)
            remove_copy(dirfd(entries), others[i].name);
    free(others);
    if (entries != NULL)
        closedir(entries);
}
