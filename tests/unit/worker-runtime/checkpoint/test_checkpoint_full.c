/* A disk that is full while a checkpoint is written: a small tmpfs, in a mount namespace of its
 * own. Skipped, with the reason, where none can be made. */
#include "tests/unit/worker-runtime/ranks.h"

#include <check.h>
#include <ddp/checkpoint.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { N = 100000 };

static char folder[64] = "/tmp/test_checkpoint_full.XXXXXX", inside[80];

static void write_map(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, text, strlen(text)); /* without it mount() fails and reports the error */
        close(fd);
    }
}

/* A disk for two checkpoints of N floats, but not for three. returns NULL, or why it cannot be
 * made */
static const char *make_disk(void)
{
    char uid[64], gid[64];
    snprintf(uid, sizeof uid, "0 %u 1", getuid());
    snprintf(gid, sizeof gid, "0 %u 1", getgid());
    if (mkdtemp(folder) == NULL)
        return "no temporary directory";
    if (unshare(CLONE_NEWNS) < 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
            return "no mount namespace";
        write_map("/proc/self/setgroups", "deny");
        write_map("/proc/self/uid_map", uid);
        write_map("/proc/self/gid_map", gid);
    }
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", folder, "tmpfs", 0, "size=1048576") < 0)
        return "no tmpfs";
    snprintf(inside, sizeof inside, "%s/checkpoints", folder);
    return NULL;
}

static unsigned n_temporary(void)
{
    unsigned n = 0;
    DIR *d = opendir(inside);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        n += strstr(e->d_name, ".tmp-") != NULL;
    closedir(d);
    return n;
}

static float state[N];
static const struct ddp_checkpoint_item item = {
    .name = "state", .dtype = DDP_FLOAT32, .n_dims = 1, .shape = {N}, .data = state};

static void expect_state(struct ddp_checkpoint *c, int rank, int64_t step, float value)
{
    memset(state, 0, sizeof state);
    RANK_CHECK(rank, ddp_checkpoint_load(c, step, &item, 1) == 0, "step %lld", (long long)step);
    for (int i = 0; i < N; i++)
        RANK_CHECK(rank, state[i] == value, "element %d", i);
}

static void fill(float value)
{
    for (int i = 0; i < N; i++)
        state[i] = value;
}

static int run_out_of_room(int rank, void *arg)
{
    const struct ddp_checkpoint_opts opts = {.directory = inside, .async = *(bool *)arg};
    struct ddp_group *g = rank_init(rank, 20000);
    struct ddp_checkpoint *c;
    int64_t step;
    RANK_CHECK(rank, ddp_checkpoint_open(g, &opts, &c) == 0, "open");
    for (int k = 1; k <= 2; k++) {
        fill((float)k);
        RANK_CHECK(rank, ddp_checkpoint_save(c, k, &item, 1) == 0, "step %d", k);
        RANK_CHECK(rank, ddp_checkpoint_wait(c) == 0, "step %d", k);
    }
    for (int k = 3; k >= 2; k--) { /* a new one, then one that replaces an old one */
        fill(9);
        int rc = ddp_checkpoint_save(c, k, &item, 1);
        if (opts.async) {
            RANK_CHECK(rank, rc == 0, "it is being written");
            rc = ddp_checkpoint_wait(c);
        }
        RANK_CHECK(rank, rc == DDP_ESYSTEM, "status %d", rc);
        RANK_CHECK(rank, strncmp(ddp_last_error(), "rank 0: cannot write '", 22) == 0, "who");
        RANK_CHECK(rank, strstr(ddp_last_error(), strerror(ENOSPC)) != NULL, "why");
    }
    RANK_CHECK(rank, ddp_checkpoint_latest(c, &step) == 0 && step == 2, "latest");
    expect_state(c, rank, 2, 2);
    expect_state(c, rank, 1, 1);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_full_disk_leaves_all_older_checkpoints_intact)
{
    bool async = _i == 1;
    struct ranks r;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", inside);
    ck_assert_int_eq(system(command), 0);
    ranks_start(&r, 2, run_out_of_room, &async);
    ranks_expect_success(&r);
    ck_assert_uint_eq(n_temporary(), 0); /* the space is free again */
}
END_TEST

static void remove_disk(void)
{
    umount2(folder, MNT_DETACH);
    rmdir(folder);
}

TEST_SUITE(checkpoint_full)
{
    const char *why = make_disk();
    if (why != NULL) {
        printf("skipped: %s: %s\n", why, strerror(errno));
        rmdir(folder);
        return NULL;
    }
    Suite *s = suite_create("checkpoint_full");
    TCase *t = tcase_create("full disk");
    tcase_set_timeout(t, 120);
    tcase_add_unchecked_fixture(t, NULL, remove_disk);
    tcase_add_loop_test(t, a_full_disk_leaves_all_older_checkpoints_intact, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
