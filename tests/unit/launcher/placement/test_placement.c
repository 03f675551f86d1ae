/* The CPUs of ranks on machines that hwloc simulates, from tests/data/placement. A line is one of:
 *
 *     machine TEXT      hwloc's synthetic description; nothing else is known of the machine
 *     allowed LIST      CPUs; without this line, all
 *     near RANK LIST    where the rank's device is
 *     bind MODE N       N ranks; a LIST for each follows, or "error NAME" */
#include "common/error.h"
#include "launcher/placement/placement.h"
#include "launcher/platform/binding.h"

#include "tests/support/cases.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 64, LINE_BYTES = 300 };

struct reader {
    FILE *in;
    const char *name;
    int line_number;
    char line[LINE_BYTES];
    struct topology *topology;
    struct cpu_set allowed;
    struct cpu_set near[RANKS_MAX];
    const struct cpu_set *near_of[RANKS_MAX];
    int n_checked;
};

/* Reads the next line with content. returns false at the end */
static bool read_line(struct reader *r)
{
    do {
        if (fgets(r->line, sizeof r->line, r->in) == NULL)
            return false;
        r->line[strcspn(r->line, "\n")] = '\0';
        r->line_number++;
    } while (r->line[0] == '#' || r->line[0] == '\0');
    return true;
}

static void set_machine(struct reader *r, const char *text)
{
    struct co_error err;
    free(r->topology);
    ck_assert_msg(topology_load(text, &r->topology, &err) == 0, "%s: %s", r->name, err.text);
    memset(&r->allowed, 0xff, sizeof r->allowed);
    memset(r->near_of, 0, sizeof r->near_of);
}

static void set_near(struct reader *r, const char *text)
{
    char *list;
    long rank = strtol(text, &list, 10);
    ck_assert(rank >= 0 && rank < RANKS_MAX && *list == ' ');
    ck_assert_int_eq(cpu_set_parse(list + 1, &r->near[rank]), 0);
    r->near_of[rank] = &r->near[rank];
}

static enum placement_bind bind_of(const char *word)
{
    static const char *const words[] = {"none", "core", "cache", "numa", "socket"};
    int i = 0;
    while (strcmp(words[i], word) != 0)
        ck_assert_int_lt(++i, 5);
    return (enum placement_bind)i;
}

static void check(struct reader *r, const char *text)
{
    struct placement_rank ranks[RANKS_MAX];
    struct co_error err = {0};
    char mode[16];
    int n;
    ck_assert_int_eq(sscanf(text, "%15s %d", mode, &n), 2);
    ck_assert(n >= 1 && n <= RANKS_MAX);
    const struct placement_wish wish = {
        .bind = bind_of(mode), .n_ranks = n, .allowed = &r->allowed, .near = r->near_of};
    int rc = placement_make(r->topology, &wish, ranks, &err);
    for (int i = 0; i < (rc == 0 ? n : 1); i++) {
        char found[LINE_BYTES];
        ck_assert(read_line(r));
        if (rc == 0)
            cpu_set_print(&ranks[i].cpus, found, sizeof found);
        else
            snprintf(found, sizeof found, "error %s", strerrorname_np(-rc));
        ck_assert_msg(strcmp(found, r->line) == 0, "%s:%d: rank %d has %s, not %s", r->name,
                      r->line_number, i, found, r->line);
    }
    ck_assert(rc == 0 || (err.code == rc && err.text[0] != '\0'));
    r->n_checked++;
}

static void check_file(const char *path)
{
    static struct reader r;
    r = (struct reader){.in = fopen(path, "r"), .name = path};
    ck_assert_ptr_nonnull(r.in);
    while (read_line(&r)) {
        char *value = r.line + strcspn(r.line, " ");
        char text[LINE_BYTES];
        *value++ = '\0';
        strcpy(text, value);
        if (strcmp(r.line, "machine") == 0)
            set_machine(&r, text);
        else if (strcmp(r.line, "allowed") == 0)
            ck_assert_int_eq(cpu_set_parse(text, &r.allowed), 0);
        else if (strcmp(r.line, "near") == 0)
            set_near(&r, text);
        else if (strcmp(r.line, "bind") == 0)
            check(&r, text);
        else
            ck_abort_msg("%s:%d: what is '%s'?", path, r.line_number, r.line);
    }
    fclose(r.in);
    free(r.topology);
    ck_assert_int_gt(r.n_checked, 0);
}

START_TEST(ranks_get_the_expected_cpus_of_each_machine)
{
    ck_assert_int_ge(cases_each("placement", check_file), 16);
}
END_TEST

/* Machines of many shapes: what holds of all of them. */
static const char *const shapes[] = {"core:1 pu:1",
                                     "core:7 pu:2",
                                     "pack:2 [numa] l3:1 core:4 pu:2(indexes=2*8:1*2)",
                                     "pack:2 numa:4 l3:2 core:4 pu:1",
                                     "numa:3 core:5 pu:3",
                                     "pack:4 [numa] core:16 pu:4",
                                     "pack:8 numa:2 core:8 pu:2"};

static struct topology *load(const char *text)
{
    struct topology *t;
    ck_assert_int_eq(topology_load(text, &t, NULL), 0);
    return t;
}

START_TEST(each_rank_has_an_allowed_cpu)
{
    struct topology *t = load(shapes[_i]);
    struct placement_rank ranks[RANKS_MAX];
    struct cpu_set allowed = {0};
    for (size_t i = 0; i < t->n_cpus; i += 1 + i % 3) /* some of them, unevenly */
        cpu_set_add(&allowed, t->cpus[i].cpu);
    for (int bind = PLACEMENT_NONE; bind <= PLACEMENT_SOCKET; bind++)
        for (int n = 1; n <= RANKS_MAX; n++) {
            struct placement_wish wish = {
                .bind = (enum placement_bind)bind, .n_ranks = n, .allowed = &allowed};
            int rc = placement_make(t, &wish, ranks, NULL);
            if (rc == -ERANGE && bind == PLACEMENT_CORE)
                continue;
            ck_assert_int_eq(rc, 0);
            for (int i = 0; i < n; i++) {
                uint64_t others = 0;
                for (size_t w = 0; w < CPU_SET_CPUS / 64; w++)
                    others |= ranks[i].cpus.word[w] & ~allowed.word[w];
                ck_assert_uint_eq(others, 0);
                ck_assert_uint_gt(cpu_set_count(&ranks[i].cpus), 0);
            }
        }
    free(t);
}
END_TEST

START_TEST(cores_are_not_shared_and_all_are_used)
{
    struct topology *t = load(shapes[_i]);
    struct placement_rank ranks[RANKS_MAX];
    struct cpu_set allowed;
    memset(&allowed, 0xff, sizeof allowed);
    for (int n = 1; n <= RANKS_MAX; n++) {
        struct placement_wish wish = {.bind = PLACEMENT_CORE, .n_ranks = n, .allowed = &allowed};
        struct cpu_set seen = {0};
        size_t n_seen = 0;
        if (placement_make(t, &wish, ranks, NULL) < 0)
            break;
        for (int i = 0; i < n; i++) {
            n_seen += cpu_set_count(&ranks[i].cpus);
            for (size_t w = 0; w < CPU_SET_CPUS / 64; w++)
                seen.word[w] |= ranks[i].cpus.word[w];
        }
        ck_assert_uint_eq(n_seen, t->n_cpus);
        ck_assert_uint_eq(cpu_set_count(&seen), t->n_cpus);
    }
    free(t);
}
END_TEST

START_TEST(the_text_of_a_binding_names_its_place)
{
    struct topology *t = load("pack:2 numa:2 core:4 pu:2");
    struct placement_rank ranks[4];
    struct cpu_set allowed;
    memset(&allowed, 0xff, sizeof allowed);
    struct placement_wish wish = {.bind = PLACEMENT_CORE, .n_ranks = 4, .allowed = &allowed};
    ck_assert_int_eq(placement_make(t, &wish, ranks, NULL), 0);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(ranks[i].node, i);
        ck_assert_int_eq(ranks[i].socket, i / 2);
        ck_assert_uint_eq(ranks[i].n_cores, 4);
    }
    wish.bind = PLACEMENT_SOCKET;
    ck_assert_int_eq(placement_make(t, &wish, ranks, NULL), 0);
    ck_assert_int_eq(ranks[3].node, PLACEMENT_NOWHERE);
    ck_assert_int_eq(ranks[3].socket, 1);
    wish.bind = PLACEMENT_NONE;
    ck_assert_int_eq(placement_make(t, &wish, ranks, NULL), 0);
    ck_assert_int_eq(ranks[0].socket, PLACEMENT_NOWHERE);
    ck_assert_uint_eq(ranks[0].n_cores, 16);
    free(t);
}
END_TEST

START_TEST(the_real_machine_has_the_cpus_of_the_kernel)
{
    struct topology *t;
    struct co_error err = {0};
    ck_assert_msg(topology_load(NULL, &t, &err) == 0, "%s", err.text);
    ck_assert_uint_ge(t->n_cpus, 1);
    ck_assert_ptr_null(getenv("HWLOC_PLUGINS_PATH")); /* it was ours, for a moment */
    free(t);
}
END_TEST

START_TEST(an_invalid_description_is_shown_in_the_error)
{
    static const char *const bad[] = {"", "core", "core:0", "pack:2 core:x", "warp:9"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct topology *t;
        struct co_error err = {0};
        ck_assert_int_eq(topology_load(bad[i], &t, &err), -EINVAL);
        ck_assert_ptr_nonnull(strstr(err.text, bad[i]));
    }
    struct topology *t;
    ck_assert_int_eq(topology_load("pack:64 core:129 pu:1", &t, NULL), -EINVAL);
}
END_TEST

TEST_SUITE(placement)
{
    enum { N_SHAPES = sizeof shapes / sizeof *shapes };
    Suite *suite = suite_create("placement");
    TCase *c = tcase_create("placement");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, ranks_get_the_expected_cpus_of_each_machine);
    tcase_add_loop_test(c, each_rank_has_an_allowed_cpu, 0, N_SHAPES);
    tcase_add_loop_test(c, cores_are_not_shared_and_all_are_used, 0, N_SHAPES);
    tcase_add_test(c, the_text_of_a_binding_names_its_place);
    tcase_add_test(c, the_real_machine_has_the_cpus_of_the_kernel);
    tcase_add_test(c, an_invalid_description_is_shown_in_the_error);
    suite_add_tcase(suite, c);
    return suite;
}
