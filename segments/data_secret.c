#include "data_secret.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct content {
    uint8_t magic[8];
    uint8_t secret[DATA_SECRET_BYTES];
};
static const uint8_t magic[8] = "DDPKEY1";

int data_secret_make(const uint8_t secret[DATA_SECRET_BYTES], int *ret_fd, struct co_error *err)
{
    struct content c;
    co_autoclose_fd int fd = memfd_create("ddp-key", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return co_fail(err, -errno, "cannot create memory for the key of the ranks: %s",
                       strerror(errno));
    memcpy(c.magic, magic, sizeof c.magic);
    memcpy(c.secret, secret, sizeof c.secret);
    const ssize_t n = pwrite(fd, &c, sizeof c, 0);
    explicit_bzero(&c, sizeof c);
    if (n != (ssize_t)sizeof c || fchmod(fd, 0600) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
        return co_fail(err, n < 0 || n == (ssize_t)sizeof c ? -errno : -EIO,
                       "cannot write the key of the ranks");
    *ret_fd = co_take_fd(&fd);
    return 0;
}

int data_secret_read(int fd, uint8_t ret[DATA_SECRET_BYTES], struct co_error *err)
{
    struct content c;
    const ssize_t n = pread(fd, &c, sizeof c, 0);
    const bool is_whole = n == (ssize_t)sizeof c && memcmp(c.magic, magic, sizeof magic) == 0;
    if (is_whole)
        memcpy(ret, c.secret, sizeof c.secret);
    explicit_bzero(&c, sizeof c);
    if (is_whole)
        return 0;
    return co_fail(err, -EBADF,
                   "descriptor %d is not the key that ddprun has passed: a program between ddprun "
                   "and this process has closed it",
                   fd);
}
