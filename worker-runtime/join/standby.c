/* standby.c - a process that waits for the place of a rank. */
#include "standby.h"

#include "common/error.h"
#include "common/parse.h"
#include "env.h"
#include "segments/node_socket.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/core/user_segment.h"

#include <ddp/env.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

static int read_number(const char *name, int64_t least, int64_t most, int64_t *ret,
                       struct co_error *err)
{
    const char *text = getenv(name);
    if (text == NULL)
        return co_fail(err, -ENOEXEC, "%s is not set in a standby process (%s)", name,
                       DDP_ENV_STANDBY);
    return co_parse_int(name, text, least, most, ret, err) == 0 ? 0 : -ENOEXEC;
}

/* The socket blocks; a handler of the program's may interrupt it. */
static int hear_place(int fd, struct co_error *err)
{
    struct node_message m;
    int segment_fd = -1;
    int rc = node_message_receive(fd, &m, &segment_fd, err);
    if (segment_fd >= 0)
        close(segment_fd);
    if (rc == 0)
        return co_fail(err, -ECANCELED, "the job ended, and this standby process was not needed");
    if (rc < 0)
        return rc;
    if (m.type != NODE_TAKE || m.local_rank >= m.n_local || m.place.rank > INT_MAX ||
        (m.text[0] != '\0' && m.text[0] != '/'))
        return co_fail(err, -ENOEXEC, "unexpected message from ddprun to a standby process");
    env_set_number(DDP_ENV_RANK, m.place.rank);
    env_set_number(DDP_ENV_ROLE_RANK, m.place.rank);
    env_set_number(DDP_ENV_LOCAL_RANK, m.local_rank);
    if (m.text[0] != '\0')
        setenv(DDP_ENV_ERROR_FILE, m.text, 1);
    unsetenv(DDP_ENV_STANDBY);
    return 0;
}

int standby_wait(struct co_error *err)
{
    int64_t bytes, fd, n_local;
    struct user_segment *segment;
    if (getenv(DDP_ENV_STANDBY) == NULL)
        return 0;
    int code = read_number(DDP_ENV_STANDBY, 0, INT64_MAX, &bytes, err);
    if (code == 0)
        code = read_number(DDP_ENV_NODE_FD, 0, INT_MAX, &fd, err);
    if (code == 0)
        code = read_number(DDP_ENV_LOCAL_WORLD_SIZE, 1, INT_MAX, &n_local, err);
    if (code == 0)
        code = process_user_segment((unsigned)n_local, &segment, err);
    if (code != 0)
        return code;
    /* What a rank has written is also written here: the pages are there when they are needed.
     * Without memory for it only time is lost. */
    user_segment_touch(segment, (uint64_t)bytes);
    fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    return hear_place((int)fd, err);
}
