#include "token.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Of file systems that several machines mount; those that linux/magic.h lacks by their own
 * number. */
#define LUSTRE_MAGIC   0x0bd00bd0
#define GPFS_MAGIC     0x47504653
#define BEEGFS_MAGIC   0x19830326
#define PANFS_MAGIC    0xaad7aaea
#define GFS2_MAGIC     0x01161970
#define WEKAFS_MAGIC   0x18031977
#define ORANGEFS_MAGIC 0x20030528

#define FOLDER "ddprun"
#define NAME   "token"

void token_wipe(struct token *t)
{
    explicit_bzero(t, sizeof *t);
}

static bool is_blank(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* what   names the place, for messages */
static int token_check(const char *what, struct token *t, struct co_error *err)
{
    while (t->len > 0 && is_blank(t->bytes[t->len - 1]))
        t->len--;
    if (t->len < SEAL_TOKEN_MIN_BYTES)
        return co_fail(err, -EINVAL, "the token in %s has %zu bytes: use at least %d", what, t->len,
                       SEAL_TOKEN_MIN_BYTES);
    return 0;
}

/* --- files --- */

/* A user who can read the file can join as a node, and a user who can write it decides which nodes
 * can join. */
static int check_owner(const char *path, int fd, struct co_error *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return co_fail(err, -errno, "cannot stat '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return co_fail(err, -EINVAL, "cannot read the token '%s': not a regular file", path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return co_fail(
            err, -EACCES,
            "the token '%s' belongs to user %u: it must belong to the user that runs this program",
            path, (unsigned)st.st_uid);
    if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return co_fail(err, -EACCES,
                       "the token '%s' is accessible to other users (mode %04o): use chmod 600",
                       path, (unsigned)(st.st_mode & 07777));
    return 0;
}

static int read_all(const char *path, int fd, struct token *t, struct co_error *err)
{
    t->len = 0;
    for (ssize_t n = 1; n > 0 && t->len < sizeof t->bytes; t->len += (size_t)n) {
        n = read(fd, t->bytes + t->len, sizeof t->bytes - t->len);
        if (n < 0 && errno == EINTR)
            n = 0;
        else if (n < 0)
            return co_fail(err, -errno, "cannot read the token '%s': %s", path, strerror(errno));
    }
    uint8_t more;
    if (t->len == sizeof t->bytes && read(fd, &more, 1) == 1)
        return co_fail(err, -EINVAL, "the token '%s' is longer than %zu bytes: use a shorter one",
                       path, sizeof t->bytes);
    return 0;
}

static int read_file(const char *path, struct token *t, struct co_error *err)
{
    /* a pipe without a writer must not hold us up */
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return co_fail(err, -errno, "cannot open the token '%s': %s", path, strerror(errno));
    int rc = check_owner(path, fd, err);
    if (rc == 0)
        rc = read_all(path, fd, t, err);
    if (rc < 0)
        return rc;
    char what[PATH_MAX];
    snprintf(what, sizeof what, "'%s'", path);
    return token_check(what, t, err);
}

/* --- the environment --- */

static int read_variable(const struct token_places *places, struct token *t, struct co_error *err)
{
    size_t len = strlen(places->variable);
    bool fits = len <= sizeof t->bytes;
    t->len = fits ? len : 0;
    memcpy(t->bytes, places->variable, t->len);
    explicit_bzero(places->variable, len);
    if (!fits)
        return co_fail(err, -EINVAL, "the token in %s is longer than %zu bytes: use a shorter one",
                       places->variable_by, sizeof t->bytes);
    return token_check(places->variable_by, t, err);
}

/* --- the home directory --- */

static bool is_shared(const char *dir)
{
    static const unsigned long kinds[] = {
        NFS_SUPER_MAGIC, CEPH_SUPER_MAGIC, SMB_SUPER_MAGIC,  SMB2_SUPER_MAGIC,  CIFS_SUPER_MAGIC,
        AFS_SUPER_MAGIC, AFS_FS_MAGIC,     CODA_SUPER_MAGIC, OCFS2_SUPER_MAGIC, V9FS_MAGIC,
        LUSTRE_MAGIC,    GPFS_MAGIC,       BEEGFS_MAGIC,     PANFS_MAGIC,       GFS2_MAGIC,
        WEKAFS_MAGIC,    ORANGEFS_MAGIC,
    };
    struct statfs fs;
    if (statfs(dir, &fs) < 0)
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (((unsigned long)fs.f_type & UINT32_MAX) == kinds[i])
            return true;
    return false;
}

/* Not in the home directory of another user, as under sudo: that user could not read it. */
static bool is_ours(const char *dir)
{
    struct stat st;
    return stat(dir, &st) == 0 && st.st_uid == geteuid();
}

static int write_random(int fd)
{
    uint8_t bytes[TOKEN_MADE_BYTES];
    char text[2 * TOKEN_MADE_BYTES + 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return -EIO;
    co_print_hex(bytes, sizeof bytes, text);
    text[sizeof text - 2] = '\n';
    ssize_t n = write(fd, text, sizeof text - 1);
    explicit_bzero(bytes, sizeof bytes);
    explicit_bzero(text, sizeof text);
    if (n != (ssize_t)sizeof text - 1)
        return n < 0 ? -errno : -EIO;
    return fsync(fd) < 0 ? -errno : 0;
}

/* Several nodes may begin at the same time: each writes a file of its own, and the first that gives
 * it the name wins. In either case the file exists afterwards. */
static int token_make(const char *dir, const char *path)
{
    char draft[PATH_MAX];
    if ((mkdir(dir, 0700) < 0 && errno != EEXIST) ||
        snprintf(draft, sizeof draft, "%s/." NAME "-XXXXXX", dir) >= (int)sizeof draft)
        return -ENOENT;
    co_autoclose_fd int fd = mkostemp(draft, O_CLOEXEC); /* mode 0600 */
    if (fd < 0)
        return -errno;
    int rc = write_random(fd);
    if (rc == 0 && link(draft, path) < 0 && errno != EEXIST)
        rc = -errno;
    unlink(draft);
    return rc;
}

/* returns   0: path is filled; -ENOENT: no home directory */
static int find_config(const struct token_places *places, char *dir, char *path)
{
    int n;
    if (places->config != NULL && places->config[0] == '/')
        n = snprintf(dir, PATH_MAX, "%s", places->config);
    else if (places->home != NULL && places->home[0] == '/')
        n = snprintf(dir, PATH_MAX, "%s/.config", places->home);
    else
        return -ENOENT;
    if (n >= PATH_MAX || snprintf(path, PATH_MAX, "%s/" FOLDER "/" NAME, dir) >= PATH_MAX)
        return -ENOENT;
    return 0;
}

static int make_at_home(const struct token_places *places, char *dir, const char *path)
{
    const char *home = places->home;
    char folder[PATH_MAX];
    bool may = places->make != TOKEN_MAKE_NEVER && home != NULL && home[0] == '/' && is_ours(home);
    if (!may || (places->make == TOKEN_MAKE_IF_SHARED && !is_shared(home)))
        return -ENOENT;
    if ((mkdir(dir, 0700) < 0 && errno != EEXIST) ||
        snprintf(folder, sizeof folder, "%s/" FOLDER, dir) >= (int)sizeof folder)
        return -ENOENT;
    return token_make(folder, path);
}

static int read_home(const struct token_places *places, struct token *t, struct co_error *err)
{
    char dir[PATH_MAX], path[PATH_MAX];
    int rc = find_config(places, dir, path);
    if (rc == 0 && access(path, F_OK) < 0)
        rc = make_at_home(places, dir, path);
    if (rc == 0)
        return read_file(path, t, err);
    return co_fail(
        err, -ENOENT,
        "no token: create one, the same on all nodes, in %s%s, or give a file with --token-file",
        places->home != NULL ? "~/.config/" FOLDER "/" NAME " or " : "", places->variable_by);
}

int token_find(const struct token_places *places, struct token *ret, struct co_error *err)
{
    *ret = (struct token){0};
    if (places->file != NULL)
        return read_file(places->file, ret, err);
    if (places->variable != NULL && places->variable[0] != '\0')
        return read_variable(places, ret, err);
    return read_home(places, ret, err);
}
