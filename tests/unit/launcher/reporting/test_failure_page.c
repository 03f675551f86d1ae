/* The page about a failure. tests/system/one_node/failure_dump.py has whole ones. */
#include "launcher/reporting/failure_page.h"

#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct failure_rank ranks[] = {
    {.rank = 4,
     .pid = 17,
     .end = "stopped by ddprun (SIGTERM)",
     .stack = "rank 4 (pid 17, python3): sleeps in futex_wait, system call futex\n  in <module>\n"},
    {.rank = 5, .pid = 18, .end = "exit status 3", .tail = "a <b> \"c\" & \033[31m\n"},
};

static char *page;

static void print(const struct failure_page *p)
{
    size_t n = 0;
    free(page);
    page = NULL;
    FILE *out = open_memstream(&page, &n);
    failure_page_print(p, out);
    fclose(out);
}

static struct failure_page full(void)
{
    return (struct failure_page){.run_id = "j<o>b",
                                 .host = "n1",
                                 .program = "./train.py",
                                 .version = "1.2",
                                 .generation = 2,
                                 .node = 3,
                                 .at_s = 1795300000,
                                 .report = "ddprun: error: rank 5 failed\n",
                                 .missing = "rank 5 is missing\n",
                                 .nccl = "NCCL 2.28.9\n",
                                 .recorder = "torch's flight recorder:\n",
                                 .kernel = "[1.000000] oops\n",
                                 .ranks = ranks,
                                 .n_ranks = 2,
                                 .cause = 5};
}

static bool has(const char *text)
{
    return strstr(page, text) != NULL;
}

START_TEST(all_that_is_known_is_shown)
{
    const struct failure_page p = full();
    print(&p);
    static const char *const parts[] = {
        "generation 2, node 3 on n1, 2026-11-21 ",
        "<pre id=\"report\">ddprun: error: rank 5",
        "<pre id=\"missing\">rank 5 is",
        "<pre id=\"nccl\">NCCL 2.28.9",
        "<pre id=\"recorder\">torch",
        "<pre id=\"kernel\">[1.000000] oops",
        "<td>sleeps in futex_wait, system call futex</td>",
        "<td class=\"bad\">exit status 3</td><td></td>",
        "<details><summary>Rank 4: stack</summary>",
        "<details open><summary>Rank 5: last lines of standard error</summary>",
        "href=\"rank_4.txt\"",
        "Made by ddprun 1.2"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ck_assert_msg(has(parts[i]), "%s\nnot in\n%s", parts[i], page);
}
END_TEST

START_TEST(texts_from_outside_are_escaped)
{
    const struct failure_page p = full();
    print(&p);
    ck_assert(has("<title>Failure of job j&lt;o&gt;b</title>"));
    ck_assert(has("a &lt;b&gt; &quot;c&quot; &amp; \xef\xbf\xbd[31m"));
    ck_assert(!has("<b>") && !has("<o>") && !has("<module>") && !has("<script"));
}
END_TEST

START_TEST(what_is_not_known_is_left_out)
{
    const struct failure_rank rank = {.rank = 0, .pid = 1, .end = "not started"};
    struct failure_page p = full();
    p.report = p.missing = p.nccl = NULL;
    p.recorder = p.kernel = "";
    p.ranks = &rank;
    p.n_ranks = 1;
    p.cause = -1;
    p.no_stacks = "No stacks: none.";
    p.no_kernel = "No log.";
    print(&p);
    ck_assert(!has("<pre") && !has("<details") && !has("class=\"bad\">"));
    ck_assert(has("<p class=\"note\">No stacks: none.</p>") &&
              has("<p class=\"note\">No log.</p>"));
}
END_TEST

static void tear_down(void)
{
    free(page);
    page = NULL;
}

TEST_SUITE(failure_page)
{
    Suite *suite = suite_create("failure_page");
    TCase *c = tcase_create("failure_page");
    tcase_add_checked_fixture(c, NULL, tear_down);
    tcase_add_test(c, all_that_is_known_is_shown);
    tcase_add_test(c, texts_from_outside_are_escaped);
    tcase_add_test(c, what_is_not_known_is_left_out);
    suite_add_tcase(suite, c);
    return suite;
}
