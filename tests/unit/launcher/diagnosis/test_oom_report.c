/* Findings in words and as JSON. */
#include "launcher/diagnosis/oom.h"
#include "launcher/diagnosis/oom_report.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct oom_finding f;

static void set_up(void)
{
    f = (struct oom_finding){.blame = OOM_BLAME_RANK,
                             .version = 1,
                             .n_kills = 1,
                             .scope = OOM_SCOPE_GROUP,
                             .group = "/batch",
                             .limit_bytes = 67108864,
                             .peak_bytes = 67108863,
                             .usage_bytes = 4096,
                             .node_bytes = UINT64_C(25276502016),
                             .victim_rank = -1};
}

static void with_victim(void)
{
    f.victim = (struct oom_victim){
        .pid = 1459, .name = "python3", .anon_bytes = 33291780, .file_bytes = 1024};
}

static void check(const char *expected)
{
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    oom_text_print(out, &f);
    fclose(out);
    ck_assert_str_eq(text, expected);
    free(text);
}

static void check_brief(const char *expected)
{
    char text[200];
    ck_assert_str_eq(oom_text_brief(&f, text, sizeof text), expected);
}

static void check_json(const char *expected)
{
    json_t *json = oom_json_make(&f);
    char *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
    ck_assert_str_eq(text, expected);
    free(text);
    json_decref(json);
}

START_TEST(bytes_are_rounded_down_to_a_tenth_of_their_unit)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.0 KiB"},
                 {1024 * 1024 - 1, "1023.9 KiB"},
                 {67108863, "63.9 MiB"},
                 {67108864, "64.0 MiB"},
                 {UINT64_C(25276502016), "23.5 GiB"},
                 {UINT64_MAX, "15.9 EiB"}};
    char text[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_str_eq(oom_text_bytes(cases[i].bytes, text, sizeof text), cases[i].text);
}
END_TEST

START_TEST(a_killed_rank_has_limit_figures_and_a_remedy)
{
    with_victim();
    check(
        "  out of memory: killed by the kernel's OOM killer\n"
        "    limit of control group /batch: 64.0 MiB (peak 63.9 MiB); 1 OOM kill since the ranks' "
        "start\n"
        "    pid 1459 (python3) held 31.7 MiB, 1.0 KiB of files and 0 B of shared memory\n"
        "    try: a higher limit (memory.limit_in_bytes), fewer ranks or data loader workers, a "
        "smaller batch\n");
    check_brief("out of memory at the limit of /batch, 64.0 MiB");
    check_json("{\"blame\":\"rank\",\"kills\":1,\"scope\":\"group\",\"cgroup\":\"/batch\","
               "\"limit_bytes\":67108864,\"peak_bytes\":67108863,\"usage_bytes\":4096,"
               "\"node_bytes\":25276502016,\"victim\":{\"pid\":1459,\"rank\":null,"
               "\"name\":\"python3\",\"anon_bytes\":33291780,\"file_bytes\":1024,"
               "\"shmem_bytes\":0}}");
}
END_TEST

START_TEST(unknown_facts_are_left_out)
{
    f.version = 2;
    f.n_kills = OOM_UNKNOWN;
    f.peak_bytes = OOM_UNKNOWN;
    f.victim.pid = 1459; /* a line of the log without figures */
    check("  out of memory: killed by the kernel's OOM killer\n"
          "    limit of control group /batch: 64.0 MiB (4.0 KiB in use afterwards)\n"
          "    try: a higher limit (memory.max), fewer ranks or data loader workers, a smaller "
          "batch\n");
    check_json("{\"blame\":\"rank\",\"kills\":null,\"scope\":\"group\",\"cgroup\":\"/batch\","
               "\"limit_bytes\":67108864,\"peak_bytes\":null,\"usage_bytes\":4096,"
               "\"node_bytes\":25276502016,\"victim\":{\"pid\":1459,\"rank\":null,\"name\":null,"
               "\"anon_bytes\":null,\"file_bytes\":null,\"shmem_bytes\":null}}");
    f.victim.pid = 0;
    f.limit_bytes = OOM_UNKNOWN;
    f.usage_bytes = OOM_UNKNOWN;
    f.group[0] = '\0';
    check("  out of memory: killed by the kernel's OOM killer\n    the limit of a control group "
          "was reached\n    try: a higher limit (memory.max), fewer ranks or data loader workers, "
          "a smaller batch\n");
    check_brief("out of memory");
}
END_TEST

START_TEST(exhausted_node_memory_is_distinguished_from_a_limit)
{
    f.scope = OOM_SCOPE_NODE;
    f.group[0] = '\0';
    f.n_kills = 2;
    check("  out of memory: killed by the kernel's OOM killer\n    the node's memory, 23.5 GiB, "
          "was exhausted; 2 OOM kills since the ranks' start\n    try: fewer ranks or data loader "
          "workers on this node, a smaller batch\n");
    check_brief("out of memory on the node");
    f.scope = OOM_SCOPE_UNKNOWN;
    f.node_bytes = OOM_UNKNOWN;
    check("  out of memory: killed by the kernel's OOM killer\n    no limit visible from here was "
          "reached: either the node's memory was exhausted, or a limit outside this container was "
          "reached; 2 OOM kills since the ranks' start\n    try: fewer ranks or data loader "
          "workers on this node, a smaller batch\n");
    check_json("{\"blame\":\"rank\",\"kills\":2,\"scope\":null,\"cgroup\":null,"
               "\"limit_bytes\":67108864,\"peak_bytes\":67108863,\"usage_bytes\":4096,"
               "\"node_bytes\":null,\"victim\":null}");
}
END_TEST

START_TEST(another_process_is_named_if_it_is_known)
{
    f.blame = OOM_BLAME_OTHER;
    f.n_kills = 2;
    check("  out of memory: while it ran, the kernel's OOM killer killed 2 processes of its "
          "control group, possibly a child of this rank\n    limit of control group /batch: 64.0 "
          "MiB (peak 63.9 MiB)\n    try: a higher limit (memory.limit_in_bytes), fewer ranks or "
          "data loader workers, a smaller batch\n");
    check_brief("the OOM killer killed another process of its control group");
    with_victim();
    f.victim_rank = 3;
    f.n_kills = 1;
    check("  out of memory: while it ran, the kernel's OOM killer killed 1 process of its control "
          "group\n    limit of control group /batch: 64.0 MiB (peak 63.9 MiB)\n    pid 1459 "
          "(python3), rank 3, held 31.7 MiB, 1.0 KiB of files and 0 B of shared memory\n    try: a "
          "higher limit (memory.limit_in_bytes), fewer ranks or data loader workers, a smaller "
          "batch\n");
}
END_TEST

START_TEST(a_possible_oom_kill_gives_the_reason)
{
    f.blame = OOM_BLAME_PERHAPS;
    f.scope = OOM_SCOPE_UNKNOWN;
    f.n_kills = 3;
    check("  possibly out of memory: its control group counts 3 OOM kills, but it ended before "
          "ddprun first read the counter\n    try: fewer ranks or data loader workers on this "
          "node, a smaller batch\n");
    check_brief("possibly out of memory");
}
END_TEST

START_TEST(without_a_finding_nothing_is_printed)
{
    f.blame = OOM_BLAME_NONE;
    check("");
    check_brief("");
    check_json("null");
}
END_TEST

START_TEST(names_with_invalid_utf8_are_null)
{
    with_victim();
    strcpy(f.group, "/\xff");
    strcpy(f.victim.name, "\xe9");
    json_t *json = oom_json_make(&f);
    ck_assert(json_is_null(json_object_get(json, "cgroup")));
    ck_assert(json_is_null(json_object_get(json_object_get(json, "victim"), "name")));
    json_decref(json);
}
END_TEST

TEST_SUITE(oom_report)
{
    Suite *suite = suite_create("oom_report");
    TCase *c = tcase_create("oom_text");
    tcase_add_checked_fixture(c, set_up, NULL);
    tcase_add_test(c, bytes_are_rounded_down_to_a_tenth_of_their_unit);
    tcase_add_test(c, a_killed_rank_has_limit_figures_and_a_remedy);
    tcase_add_test(c, unknown_facts_are_left_out);
    tcase_add_test(c, exhausted_node_memory_is_distinguished_from_a_limit);
    tcase_add_test(c, another_process_is_named_if_it_is_known);
    tcase_add_test(c, a_possible_oom_kill_gives_the_reason);
    tcase_add_test(c, without_a_finding_nothing_is_printed);
    tcase_add_test(c, names_with_invalid_utf8_are_null);
    suite_add_tcase(suite, c);
    return suite;
}
