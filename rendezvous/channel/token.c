#include "token.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
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

#define DIRECTORY "ddprun"
#define NAME      "token"

enum { ACL_MAX_ENTRIES = 32 }; /* of a list that is longer the group bits count */

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

struct acl {
    struct posix_acl_xattr_header header;
    struct posix_acl_xattr_entry entries[ACL_MAX_ENTRIES];
};

/* With an access control list, the group bits of the mode are its mask: the most that any entry has
 * but the owner's and that for others. systemd gives a service its credentials by an entry for the
 * service's user, which shows as mode 0440.
 *
 * returns   whether users other than us and root have access by the list; if the file has none that
 *           we understand, by the group bits */
static bool group_has_access(int fd, mode_t mode)
{
    struct acl acl;
    const ssize_t n = fgetxattr(fd, "system.posix_acl_access", &acl, sizeof acl);
    const size_t n_entries = n > 0 ? ((size_t)n - sizeof acl.header) / sizeof *acl.entries : 0;
    const unsigned mask = (mode & S_IRWXG) >> 3;
    if (n < (ssize_t)sizeof acl.header || le32toh(acl.header.a_version) != POSIX_ACL_XATTR_VERSION)
        return mask != 0;
    for (size_t i = 0; i < n_entries; i++) {
        const unsigned tag = le16toh(acl.entries[i].e_tag), id = le32toh(acl.entries[i].e_id);
        const bool is_us = tag == ACL_USER && (id == geteuid() || id == 0);
        const bool is_for_others = tag == ACL_USER || tag == ACL_GROUP || tag == ACL_GROUP_OBJ;
        if (is_for_others && !is_us && (le16toh(acl.entries[i].e_perm) & mask) != 0)
            return true;
    }
    return false;
}

/* A user who can read the file can join as a node, and a user who can write it decides which nodes
 * can join. */
static int check_owner(const char *what, const char *path, int fd, struct co_error *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return co_fail(err, -errno, "cannot stat '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return co_fail(err, -EINVAL, "cannot read %s '%s': not a regular file", what, path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return co_fail(
            err, -EACCES,
            "%s '%s' belongs to user %u: it must belong to the user that runs this program", what,
            path, (unsigned)st.st_uid);
    if ((st.st_mode & S_IRWXO) != 0 || group_has_access(fd, st.st_mode))
        return co_fail(err, -EACCES,
                       "%s '%s' is accessible to other users (mode %04o): use chmod 600", what,
                       path, (unsigned)(st.st_mode & 07777));
    return 0;
}

int token_open_file(const char *what, const char *path, struct co_error *err)
{
    /* a pipe without a writer must not hold us up */
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return co_fail(err, -errno, "cannot open %s '%s': %s", what, path, strerror(errno));
    int rc = check_owner(what, path, fd, err);
    return rc < 0 ? rc : co_take_fd(&fd);
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
    co_autoclose_fd int fd = token_open_file("the token", path, err);
    int rc = fd < 0 ? fd : read_all(path, fd, t, err);
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
    if (n >= PATH_MAX || snprintf(path, PATH_MAX, "%s/" DIRECTORY "/" NAME, dir) >= PATH_MAX)
        return -ENOENT;
    return 0;
}

static int make_at_home(const struct token_places *places, char *dir, const char *path)
{
    const char *home = places->home;
    char directory[PATH_MAX];
    bool may = places->make != TOKEN_MAKE_NEVER && home != NULL && home[0] == '/' && is_ours(home);
    if (!may || (places->make == TOKEN_MAKE_IF_SHARED && !is_shared(home)))
        return -ENOENT;
    if ((mkdir(dir, 0700) < 0 && errno != EEXIST) ||
        snprintf(directory, sizeof directory, "%s/" DIRECTORY, dir) >= (int)sizeof directory)
        return -ENOENT;
    return token_make(directory, path);
}

/* Only a file that certainly does not exist counts as none: a job must not go without one because
 * its directory is closed to us, or a file server fails for a moment. */
static int read_home(const struct token_places *places, struct token *t, struct co_error *err)
{
    char dir[PATH_MAX], path[PATH_MAX];
    struct stat st;
    int rc = find_config(places, dir, path);
    if (rc == 0 && stat(path, &st) < 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            return co_fail(
                err, -EACCES,
                "cannot find out whether there is a token '%s': %s; if the file does not exist, "
                "set XDG_CONFIG_HOME to a directory that can be read",
                path, strerror(errno));
        rc = make_at_home(places, dir, path);
    }
    if (rc == 0)
        return read_file(path, t, err);
    return co_fail(
        err, -ENOENT,
        "no token: create one, the same on all nodes, in %s%s, or give a file with --token-file",
        places->home != NULL ? "~/.config/" DIRECTORY "/" NAME " or " : "", places->variable_by);
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
