/* In which directories the job's own directory is made. */
#include "launcher/spawner/runtime_dir.h"

#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OTHER_UID = 65534 };

static char parent[] = "/tmp/runtime-XXXXXX";

static void set_up(void)
{
    strcpy(parent, "/tmp/runtime-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(parent));
    setenv("XDG_RUNTIME_DIR", parent, 1);
}

static void tear_down(void)
{
    ck_assert_int_eq(rmdir(parent), 0);
}

/* Whether the directory is made in the parent of this mode. */
static bool is_used(mode_t mode)
{
    struct runtime_dir_names names;
    struct co_error err = {0};
    const char *dir = NULL;
    ck_assert_int_eq(chmod(parent, mode), 0);
    ck_assert_int_eq(runtime_dir_choose(&names, &err), 0);
    ck_assert_msg(runtime_dir_make(&names, &dir, &err) == 0, "%s", err.text);
    const bool is_in = strncmp(dir, parent, strlen(parent)) == 0;
    runtime_dir_remove(dir);
    runtime_dir_forget_names(&names);
    return is_in;
}

START_TEST(a_directory_that_others_can_write_to_is_used_if_it_is_sticky)
{
    ck_assert(is_used(0700));
    ck_assert(is_used(0755));
    ck_assert(!is_used(0777));
    ck_assert(!is_used(0775));
    ck_assert(is_used(01777));
    ck_assert(is_used(01775));
}
END_TEST

/* What XDG_RUNTIME_DIR is after `sudo -E`. */
START_TEST(a_directory_of_another_user_is_not_used)
{
    if (geteuid() != 0) {
        fprintf(stderr, "skipped: only root can give a directory to another user\n");
        return;
    }
    ck_assert_int_eq(chown(parent, OTHER_UID, OTHER_UID), 0);
    ck_assert(!is_used(0700));
    ck_assert(!is_used(01777));
}
END_TEST

/* As an ordinary user, whose /tmp belongs to root. */
START_TEST(a_sticky_directory_of_root_is_used)
{
    if (geteuid() != 0) {
        fprintf(stderr, "skipped: only root can become another user\n");
        return;
    }
    ck_assert_int_eq(chmod(parent, 01777), 0);
    ck_assert_int_eq(seteuid(OTHER_UID), 0);
    struct runtime_dir_names names;
    const char *dir = NULL;
    ck_assert_int_eq(runtime_dir_choose(&names, NULL), 0);
    ck_assert_int_eq(runtime_dir_make(&names, &dir, NULL), 0);
    ck_assert_int_eq(strncmp(dir, parent, strlen(parent)), 0);
    runtime_dir_remove(dir);
    ck_assert_int_eq(seteuid(0), 0);
    runtime_dir_forget_names(&names);
}
END_TEST

START_TEST(without_a_safe_directory_the_message_states_what_to_do)
{
    char path[64];
    struct runtime_dir_names names = {.paths = {path}, .n = 1};
    struct co_error err = {0};
    const char *dir = NULL;
    snprintf(path, sizeof path, "%s/ddprun-abcdef", parent);
    ck_assert_int_eq(chmod(parent, 0777), 0);
    ck_assert_int_lt(runtime_dir_make(&names, &dir, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.text, "other users can replace it; set XDG_RUNTIME_DIR"));
    ck_assert_ptr_null(dir);
}
END_TEST

TEST_SUITE(runtime_dir)
{
    Suite *s = suite_create("runtime directory");
    TCase *t = tcase_create("parents");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_directory_that_others_can_write_to_is_used_if_it_is_sticky);
    tcase_add_test(t, a_directory_of_another_user_is_not_used);
    tcase_add_test(t, a_sticky_directory_of_root_is_used);
    tcase_add_test(t, without_a_safe_directory_the_message_states_what_to_do);
    suite_add_tcase(s, t);
    return s;
}
