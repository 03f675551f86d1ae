/* data_key.c - a secret, from ddprun or a file, and the key of a generation. */
#include "data_key.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "segments/data_secret.h"

#include <ctype.h>
#include <ddp/env.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert((int)DATA_SECRET_BYTES == (int)CIPHER_KEY_BYTES, "it is a key as it is");

static const char *get_text(env_get_fn *get, void *arg, const char *name)
{
    const char *value = get(arg, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int check_file(const char *path, int fd, struct co_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return co_fail(err, -errno, "cannot stat the key file '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return co_fail(err, -EINVAL, "cannot read the key file '%s': not a regular file", path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return co_fail(err, -EACCES,
                       "the key file '%s' belongs to user %u: it must belong to the user that runs "
                       "this program",
                       path, (unsigned)st.st_uid);
    if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return co_fail(err, -EACCES,
                       "the key file '%s' is accessible to other users (mode %04o): use chmod 600",
                       path, (unsigned)(st.st_mode & 07777));
    return 0;
}

/* The digits, in whichever case, are what is digested. */
static int digest_text(const char *path, char *text, size_t n, uint8_t ret[CIPHER_KEY_BYTES],
                       struct co_error *err)
{
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    bool is_hex = n >= DATA_KEY_LEAST_DIGITS && n <= DATA_KEY_MOST_DIGITS;
    for (size_t i = 0; is_hex && i < n; i++) {
        is_hex = isxdigit((unsigned char)text[i]);
        text[i] = (char)tolower((unsigned char)text[i]);
    }
    if (!is_hex)
        return co_fail(err, -EINVAL,
                       "the key file '%s' has no key: expected %d to %d hexadecimal digits, as "
                       "'openssl rand -hex 32' prints them",
                       path, DATA_KEY_LEAST_DIGITS, DATA_KEY_MOST_DIGITS);
    cipher_digest(text, n, ret);
    return 0;
}

static int read_file(const char *path, uint8_t ret[CIPHER_KEY_BYTES], struct co_error *err)
{
    char text[DATA_KEY_MOST_DIGITS + 64];
    /* a pipe without a writer must not hold this rank up */
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return co_fail(err, -errno, "cannot open the key file '%s': %s", path, strerror(errno));
    int code = check_file(path, fd, err);
    if (code != 0)
        return code;
    const ssize_t n = read(fd, text, sizeof text);
    if (n < 0)
        return co_fail(err, -errno, "cannot read the key file '%s': %s", path, strerror(errno));
    code = digest_text(path, text, (size_t)n, ret, err);
    cipher_wipe(text, sizeof text);
    return code;
}

static int find_secret(env_get_fn *get, void *arg, uint8_t ret[CIPHER_KEY_BYTES],
                       struct co_error *err)
{
    const char *fd = get_text(get, arg, DDP_ENV_ENCRYPT_FD),
               *path = get_text(get, arg, DDP_ENV_ENCRYPT_KEY_FILE);
    int64_t number = -1;
    int code = fd != NULL ? co_parse_int(DDP_ENV_ENCRYPT_FD, fd, 0, INT_MAX, &number, err) : 0;
    if (code != 0)
        return -ENOEXEC;
    if (path != NULL)
        return read_file(path, ret, err);
    if (fd == NULL)
        return co_fail(err, -ENOEXEC,
                       DDP_ENV_ENCRYPT " is 1, but this process has no key: use ddprun --encrypt, "
                                       "or set " DDP_ENV_ENCRYPT_KEY_FILE " on all nodes");
    if (data_secret_read((int)number, ret, err) == 0)
        return 0;
    co_fail_in(err, DDP_ENV_ENCRYPT_FD);
    return -ENOEXEC;
}

static void fill_keys(const uint8_t secret[CIPHER_KEY_BYTES], uint32_t generation,
                      struct data_keys *ret)
{
    uint8_t number[4], library[CIPHER_KEY_BYTES];
    for (unsigned i = 0; i < sizeof number; i++)
        number[i] = (uint8_t)(generation >> 8 * i);
    cipher_derive(secret, "ddp generation 1", number, sizeof number, ret->generation,
                  sizeof ret->generation);
    cipher_derive(secret, "ddp library 1", NULL, 0, library, sizeof library);
    for (unsigned i = 0; i < sizeof library; i++)
        snprintf(ret->library + 2 * i, 3, "%02x", library[i]);
    cipher_wipe(library, sizeof library);
}

int data_key_find(env_get_fn *get, void *arg, uint32_t generation, struct data_keys *ret,
                  bool *ret_has, struct co_error *err)
{
    const char *encrypt = get_text(get, arg, DDP_ENV_ENCRYPT);
    uint8_t secret[CIPHER_KEY_BYTES];
    *ret_has = false;
    if (encrypt == NULL || strcmp(encrypt, "0") == 0)
        return 0;
    if (strcmp(encrypt, "1") != 0)
        return co_fail(err, -ENOEXEC,
                       "invalid value '%.100s' for " DDP_ENV_ENCRYPT ": expected 0 or 1", encrypt);
    if (cipher_suites() == 0)
        return co_fail(err, -ENOSYS, "libsodium cannot be initialized on this machine");
    const int code = find_secret(get, arg, secret, err);
    if (code != 0)
        return code;
    fill_keys(secret, generation, ret);
    cipher_wipe(secret, sizeof secret);
    *ret_has = true;
    return 0;
}
