/* Tokens in real files, in a directory that is made for each test. */
#include "common/error.h"
#include "rendezvous/channel/token.h"
#include "tests/support/suite.h"

#include <check.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define GOOD "0123456789abcdef0123456789abcdef"

static char home[64];
static char path[256];
static struct token token;
static struct co_error err;
static struct token_places places;

static void set_up(void)
{
    snprintf(home, sizeof home, "/tmp/ddp-token-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(home));
    places = (struct token_places){.variable_by = "DDP_TOKEN", .home = home};
    err.text[0] = '\0';
    umask(022);
}

static void tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", home);
    ck_assert_int_eq(system(command), 0);
    token_wipe(&token);
}

/* A file below the home. */
static const char *put(const char *name, const char *text, size_t len, mode_t mode)
{
    snprintf(path, sizeof path, "%s/%s", home, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, len), (ssize_t)len);
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
    return path;
}

static void make_config(void)
{
    char dir[128];
    snprintf(dir, sizeof dir, "%s/.config", home);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    snprintf(dir, sizeof dir, "%s/.config/ddprun", home);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
}

static int find(void)
{
    return token_find(&places, &token, &err);
}

static void check_token(const char *expected)
{
    int rc = find();
    ck_assert_msg(rc == 0, "%s", err.text);
    ck_assert_uint_eq(token.len, strlen(expected));
    ck_assert_mem_eq(token.bytes, expected, token.len);
}

static void check_refused(int code, const char *part)
{
    ck_assert_int_eq(find(), code);
    ck_assert_msg(strstr(err.text, part) != NULL, "'%s' is not in: %s", part, err.text);
}

START_TEST(a_named_file_is_read)
{
    places.file = put("secret", GOOD "\n", sizeof GOOD, 0600);
    check_token(GOOD);
    places.file = put("secret", GOOD " \r\n\n", sizeof GOOD + 3, 0400);
    check_token(GOOD);
}
END_TEST

START_TEST(a_token_may_contain_any_byte)
{
    uint8_t bytes[256];
    for (int i = 0; i < 256; i++)
        bytes[i] = (uint8_t)i;
    places.file = put("secret", (const char *)bytes, sizeof bytes, 0600);
    ck_assert_int_eq(find(), 0);
    ck_assert_uint_eq(token.len, sizeof bytes);
    ck_assert_mem_eq(token.bytes, bytes, sizeof bytes);
}
END_TEST

START_TEST(a_file_that_others_can_open_is_refused)
{
    static const mode_t modes[] = {0640, 0604, 0620, 0602, 0610, 0644, 0666};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        places.file = put("secret", GOOD, 32, modes[i]);
        check_refused(-EACCES, "is accessible to other users (mode 06");
    }
}
END_TEST

/* The owner has read and write access, others none, the mask is `mask`; and the entry of the test:
 * `tag` with read access for `id`. returns   false: the file system has no such lists */
static bool set_acl(unsigned tag, uid_t id, unsigned mask)
{
    struct {
        struct posix_acl_xattr_header header;
        struct posix_acl_xattr_entry entries[5];
    } acl = {{htole32(POSIX_ACL_XATTR_VERSION)},
             {{htole16(ACL_USER_OBJ), htole16(ACL_READ | ACL_WRITE), htole32(UINT32_MAX)},
              {htole16(ACL_GROUP_OBJ), 0, htole32(UINT32_MAX)},
              {htole16(ACL_GROUP), 0, htole32(4003)},
              {htole16(ACL_MASK), htole16((uint16_t)mask), htole32(UINT32_MAX)},
              {htole16(ACL_OTHER), 0, htole32(UINT32_MAX)}}};
    struct posix_acl_xattr_entry *e = tag == ACL_GROUP       ? &acl.entries[2]
                                      : tag == ACL_GROUP_OBJ ? &acl.entries[1]
                                                             : NULL;
    if (e == NULL) { /* entries must be in the order of their tags */
        acl.entries[2] = acl.entries[1];
        e = &acl.entries[1];
        *e = (struct posix_acl_xattr_entry){htole16(ACL_USER), 0, htole32(id)};
    }
    e->e_perm = htole16(ACL_READ);
    int rc = setxattr(path, "system.posix_acl_access", &acl, sizeof acl, 0);
    ck_assert(rc == 0 || errno == EOPNOTSUPP);
    return rc == 0;
}

START_TEST(a_file_whose_access_control_list_names_only_us_is_read)
{
    places.file = put("secret", GOOD, 32, 0600);
    if (!set_acl(ACL_USER, geteuid(), ACL_READ)) {
        printf("skipped: /tmp has no access control lists\n");
        return;
    }
    check_token(GOOD);
    ck_assert(set_acl(ACL_USER, 0, ACL_READ));
    check_token(GOOD);
    ck_assert(set_acl(ACL_USER, geteuid() + 1, 0)); /* masked */
    check_token(GOOD);
    ck_assert(set_acl(ACL_USER, geteuid() + 1, ACL_READ));
    check_refused(-EACCES, "is accessible to other users (mode 0640)");
    ck_assert(set_acl(ACL_GROUP, 0, ACL_READ));
    check_refused(-EACCES, "is accessible to other users (mode 0640)");
    ck_assert(set_acl(ACL_GROUP_OBJ, 0, ACL_READ));
    check_refused(-EACCES, "is accessible to other users (mode 0640)");
}
END_TEST

/* systemd gives a service such a file. */
START_TEST(a_file_of_root_that_a_list_opens_to_us_is_read)
{
    places.file = put("secret", GOOD, 32, 0400);
    ck_assert_int_eq(chmod(home, 0711), 0);
    if (geteuid() != 0 || !set_acl(ACL_USER, 61234, ACL_READ)) {
        printf("skipped: not root, or /tmp has no access control lists\n");
        return;
    }
    check_refused(-EACCES, "is accessible to other users (mode 0640)");
    ck_assert_int_eq(seteuid(61234), 0);
    int rc = find();
    ck_assert_int_eq(seteuid(0), 0);
    ck_assert_msg(rc == 0, "%s", err.text);
}
END_TEST

START_TEST(a_file_of_another_user_is_refused)
{
    places.file = put("secret", GOOD, 32, 0600);
    if (geteuid() != 0)
        return; /* only root can give a file away */
    ck_assert_int_eq(chown(path, 12345, 12345), 0);
    check_refused(-EACCES, "belongs to user 12345");
}
END_TEST

START_TEST(the_length_has_bounds)
{
    static char text[SEAL_TOKEN_MAX_BYTES + 2];
    memset(text, 'x', sizeof text);
    places.file = put("secret", text, SEAL_TOKEN_MIN_BYTES - 1, 0600);
    check_refused(-EINVAL, "has 15 bytes: use at least 16");
    places.file = put("secret", "                      \n", 23, 0600);
    check_refused(-EINVAL, "has 0 bytes: use at least 16");
    places.file = put("secret", text, SEAL_TOKEN_MAX_BYTES, 0600);
    ck_assert_int_eq(find(), 0);
    ck_assert_uint_eq(token.len, SEAL_TOKEN_MAX_BYTES);
    places.file = put("secret", text, SEAL_TOKEN_MAX_BYTES + 1, 0600);
    check_refused(-EINVAL, "is longer than 4096 bytes");
    places.file = NULL;
    text[SEAL_TOKEN_MAX_BYTES + 1] = '\0';
    places.variable = text;
    check_refused(-EINVAL, "the token in DDP_TOKEN is longer than 4096 bytes: use a shorter one");
}
END_TEST

START_TEST(anything_but_a_regular_file_is_refused)
{
    places.file = home;
    check_refused(-EINVAL, "not a regular file");
    snprintf(path, sizeof path, "%s/pipe", home);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    places.file = path; /* no process writes: it must not wait either */
    check_refused(-EINVAL, "not a regular file");
    places.file = "/nonexistent/secret";
    check_refused(-ENOENT, "cannot open the token '/nonexistent/secret'");
}
END_TEST

START_TEST(a_variable_is_read)
{
    places.variable = GOOD "\n";
    check_token(GOOD);
    places.variable = "short";
    check_refused(-EINVAL, "the token in DDP_TOKEN has 5 bytes");
}
END_TEST

START_TEST(the_named_file_precedes_the_variable_and_the_home_directory)
{
    make_config();
    put(".config/ddprun/token", "home home home home", 19, 0600);
    check_token("home home home home");
    places.variable = "";
    check_token("home home home home");
    places.variable = "variable variable";
    check_token("variable variable");
    places.file = put("secret", "file file file file", 19, 0600);
    check_token("file file file file");
}
END_TEST

START_TEST(a_bad_file_in_the_home_directory_is_an_error)
{
    make_config();
    put(".config/ddprun/token", GOOD, 32, 0644);
    places.make = TOKEN_MAKE_ALWAYS;
    check_refused(-EACCES, "chmod 600");
}
END_TEST

START_TEST(an_inaccessible_file_in_the_home_directory_is_an_error)
{
    char dir[128];
    make_config();
    snprintf(dir, sizeof dir, "%s/.config/ddprun", home);
    snprintf(path, sizeof path, "%s/token", dir);
    ck_assert_int_eq(symlink("token", path), 0);
    check_refused(-EACCES, "Too many levels of symbolic links");
    ck_assert_int_eq(unlink(path), 0);
    check_refused(-ENOENT, "no token");
    ck_assert_int_eq(chmod(dir, 0), 0);
    if (geteuid() == 0)
        ck_assert_int_eq(chmod(home, 0711) | seteuid(61234), 0);
    check_refused(-EACCES, "Permission denied");
    if (getuid() == 0)
        ck_assert_int_eq(seteuid(0), 0);
    ck_assert_int_eq(chmod(dir, 0700), 0);
}
END_TEST

START_TEST(a_home_without_directories_has_no_token)
{
    put(".config", "a file", 6, 0600);
    check_refused(-ENOENT, "no token");
}
END_TEST

START_TEST(the_config_directory_may_be_elsewhere)
{
    char elsewhere[128];
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", home);
    ck_assert_int_eq(mkdir(elsewhere, 0700), 0);
    snprintf(path, sizeof path, "%s/ddprun", elsewhere);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    put("elsewhere/ddprun/token", GOOD, 32, 0600);
    places.config = "relative"; /* means nothing */
    ck_assert_int_eq(find(), -ENOENT);
    places.config = elsewhere;
    check_token(GOOD);
    places.home = NULL;
    check_token(GOOD);
}
END_TEST

START_TEST(without_a_token_the_error_names_the_ways_to_make_one)
{
    check_refused(-ENOENT, "~/.config/ddprun/token or DDP_TOKEN, or give a file with --token-file");
    places.home = NULL;
    places.make = TOKEN_MAKE_ALWAYS;
    check_refused(-ENOENT, "in DDP_TOKEN, or give");
    places.home = "relative";
    check_refused(-ENOENT, "no token: create one");
}
END_TEST

START_TEST(a_generated_token_is_kept)
{
    struct stat st;
    struct token first;
    places.make = TOKEN_MAKE_ALWAYS;
    ck_assert_msg(find() == 0, "%s", err.text);
    ck_assert_uint_eq(token.len, 2 * TOKEN_MADE_BYTES);
    first = token;
    ck_assert_int_eq(find(), 0);
    ck_assert_mem_eq(token.bytes, first.bytes, first.len);
    snprintf(path, sizeof path, "%s/.config/ddprun/token", home);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    snprintf(path, sizeof path, "%s/.config/ddprun", home);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    char command[256];
    snprintf(command, sizeof command, "rm -r %s/.config", home);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(find(), 0);
    ck_assert_mem_ne(token.bytes, first.bytes, first.len);
}
END_TEST

START_TEST(on_a_local_disk_no_token_is_made)
{
    /* where this is tested, /tmp is not a network file system */
    places.make = TOKEN_MAKE_IF_SHARED;
    ck_assert_int_eq(find(), -ENOENT);
    snprintf(path, sizeof path, "%s/.config", home);
    ck_assert_int_lt(access(path, F_OK), 0);
}
END_TEST

START_TEST(no_token_is_made_in_another_users_home)
{
    places.make = TOKEN_MAKE_ALWAYS;
    if (geteuid() != 0)
        return;
    ck_assert_int_eq(chown(home, 12345, 12345), 0);
    ck_assert_int_eq(find(), -ENOENT);
}
END_TEST

static void *find_in_thread(void *arg)
{
    struct token *t = arg;
    ck_assert_int_eq(token_find(&places, t, NULL), 0);
    return NULL;
}

START_TEST(nodes_that_start_together_get_the_same_token)
{
    enum { N = 8, ROUNDS = 20 };
    static struct token tokens[N];
    pthread_t threads[N];
    char command[256];
    places.make = TOKEN_MAKE_ALWAYS;
    snprintf(command, sizeof command, "rm -rf %s/.config", home);
    for (int round = 0; round < ROUNDS; round++) {
        ck_assert_int_eq(system(command), 0);
        for (int i = 0; i < N; i++)
            ck_assert_int_eq(pthread_create(&threads[i], NULL, find_in_thread, &tokens[i]), 0);
        for (int i = 0; i < N; i++)
            ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        for (int i = 1; i < N; i++)
            ck_assert_mem_eq(tokens[i].bytes, tokens[0].bytes, 2 * TOKEN_MADE_BYTES);
    }
    snprintf(path, sizeof path, "%s/.config/ddprun", home);
    DIR *dir = opendir(path);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        ck_assert_msg(e->d_name[0] != '.' || e->d_name[1] == '\0' || e->d_name[1] == '.',
                      "%s is left", e->d_name);
    closedir(dir);
}
END_TEST

TEST_SUITE(token)
{
    Suite *suite = suite_create("token");
    TCase *c = tcase_create("token");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, a_named_file_is_read);
    tcase_add_test(c, a_token_may_contain_any_byte);
    tcase_add_test(c, a_file_that_others_can_open_is_refused);
    tcase_add_test(c, a_file_whose_access_control_list_names_only_us_is_read);
    tcase_add_test(c, a_file_of_root_that_a_list_opens_to_us_is_read);
    tcase_add_test(c, a_file_of_another_user_is_refused);
    tcase_add_test(c, the_length_has_bounds);
    tcase_add_test(c, anything_but_a_regular_file_is_refused);
    tcase_add_test(c, a_variable_is_read);
    tcase_add_test(c, the_named_file_precedes_the_variable_and_the_home_directory);
    tcase_add_test(c, a_bad_file_in_the_home_directory_is_an_error);
    tcase_add_test(c, an_inaccessible_file_in_the_home_directory_is_an_error);
    tcase_add_test(c, a_home_without_directories_has_no_token);
    tcase_add_test(c, the_config_directory_may_be_elsewhere);
    tcase_add_test(c, without_a_token_the_error_names_the_ways_to_make_one);
    tcase_add_test(c, a_generated_token_is_kept);
    tcase_add_test(c, on_a_local_disk_no_token_is_made);
    tcase_add_test(c, no_token_is_made_in_another_users_home);
    tcase_add_test(c, nodes_that_start_together_get_the_same_token);
    suite_add_tcase(suite, c);
    return suite;
}
