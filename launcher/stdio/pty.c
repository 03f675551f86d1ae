#include "pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

void pty_resize(int ours, int like)
{
    struct winsize size;
    if (ioctl(like, TIOCGWINSZ, &size) == 0)
        ioctl(ours, TIOCSWINSZ, &size);
}

int pty_columns(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static int set_raw(int fd)
{
    struct termios t;
    if (tcgetattr(fd, &t) < 0)
        return -errno;
    cfmakeraw(&t);
    return tcsetattr(fd, TCSANOW, &t) < 0 ? -errno : 0;
}

int pty_open(int like, int *ret_ours, int *ret_rank)
{
    int ours = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (ours < 0)
        return -errno;
    int rc = unlockpt(ours) < 0 ? -errno : 0;
    int rank = -1;
    if (rc == 0) {
        rank = ioctl(ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        rc = rank < 0 ? -errno : set_raw(rank);
    }
    if (rc < 0) {
        close(ours);
        if (rank >= 0)
            close(rank);
        return rc;
    }
    pty_resize(ours, like);
    *ret_ours = ours;
    *ret_rank = rank;
    return 0;
}
