/* What is executed, decided in an environment that is a test double. */
#include "common/error.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/program.h"
#include "tests/support/fake_host_env.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fake_host_env fake;
static struct job_spec spec;
static struct co_error err;

static void set_up(void)
{
    fake = fake_host_env_usual;
}

static void tear_down(void)
{
    job_spec_fini(&spec);
}

/* "path: argv[0] argv[1] ... (shown)", or "CODE text" */
static const char *make_of(enum program_rule rule, char *const *words)
{
    static char text[4096];
    struct host_env world = fake_host_env_make(&fake);
    job_spec_fini(&spec);
    int rc = program_make(rule, words, &world, &spec, &err);
    if (rc < 0) {
        ck_assert_int_eq(err.code, rc);
        ck_assert_ptr_null(spec.path);
        snprintf(text, sizeof text, "%s %s", strerrorname_np(-rc), err.text);
        return text;
    }
    snprintf(text, sizeof text, "%s:", spec.path);
    for (char **word = spec.argv; *word != NULL; word++) {
        strcat(text, " ");
        strcat(text, *word);
    }
    strcat(text, " (");
    strcat(text, spec.shown);
    return strcat(text, ")");
}

static const char *make(enum program_rule rule, const char *name)
{
    char *const words[] = {(char *)name, "-a", "b c", NULL};
    return make_of(rule, words);
}

static const char *make_dashed(enum program_rule rule, const char *name)
{
    char *const words[] = {(char *)name, "--", "-a", "--", NULL};
    return make_of(rule, words);
}

#define WITH_ENV(...)                                                                              \
    fake.env = (const char *[])                                                                    \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

START_TEST(python_runs_scripts_and_text_files)
{
    ck_assert_str_eq(make(PROGRAM_BY_FILE, "train.py"),
                     "/usr/bin/python3: /usr/bin/python3 -u train.py -a b c (train.py)");
    ck_assert_str_eq(make(PROGRAM_BY_FILE, "./tool.py"),
                     "/usr/bin/python3: /usr/bin/python3 -u ./tool.py -a b c (./tool.py)");
    ck_assert_str_eq(make(PROGRAM_BY_FILE, "./notes"),
                     "/usr/bin/python3: /usr/bin/python3 -u ./notes -a b c (./notes)");
    ck_assert_str_eq(make(PROGRAM_BY_FILE, "notes"),
                     "/usr/bin/python3: /usr/bin/python3 -u notes -a b c (notes)");
    ck_assert_str_eq(make(PROGRAM_BY_FILE, "app"),
                     "/usr/bin/python3: /usr/bin/python3 -u app -a b c (app)");
    ck_assert_str_eq(make(PROGRAM_BY_FILE, "./app"),
                     "/usr/bin/python3: /usr/bin/python3 -u ./app -a b c (./app)");
    ck_assert_str_eq(make(PROGRAM_BY_FILE, "app.py"),
                     "/usr/bin/python3: /usr/bin/python3 -u app.py -a b c (app.py)");
}
END_TEST

START_TEST(a_script_name_with_a_dash_is_not_a_python_option)
{
    ck_assert_str_eq(make(PROGRAM_BY_FILE, "-dash.py"),
                     "/usr/bin/python3: /usr/bin/python3 -u ./-dash.py -a b c (-dash.py)");
    ck_assert_str_eq(make(PROGRAM_SCRIPT, "-dash.py"),
                     "/usr/bin/python3: /usr/bin/python3 -u ./-dash.py -a b c (-dash.py)");
    ck_assert_int_eq(spec.n_program_words, 3);
}
END_TEST

START_TEST(programs_are_executed)
{
    ck_assert_str_eq(make(PROGRAM_BY_FILE, "./program"), "./program: ./program -a b c (./program)");
    ck_assert_str_eq(make(PROGRAM_BY_FILE, "true"), "/usr/bin/true: true -a b c (true)");
    ck_assert_str_eq(make(PROGRAM_BY_FILE, "/usr/bin/true"),
                     "/usr/bin/true: /usr/bin/true -a b c (/usr/bin/true)");
    ck_assert_str_eq(make(PROGRAM_EXEC, "./tool.py"), "./tool.py: ./tool.py -a b c (./tool.py)");
    ck_assert_str_eq(make(PROGRAM_EXEC, "true"), "/usr/bin/true: true -a b c (true)");
}
END_TEST

START_TEST(path_precedes_the_current_directory)
{
    ck_assert_str_eq(make(PROGRAM_BY_FILE, "both"), "/usr/bin/both: both -a b c (both)");
    WITH_ENV("PATH=/usr/local/bin::/usr/bin"); /* an empty part is the current directory */
    ck_assert_str_eq(make(PROGRAM_BY_FILE, "program"), "./program: program -a b c (program)");
    WITH_ENV("A=b"); /* without a PATH, the usual one */
    ck_assert_str_eq(make(PROGRAM_BY_FILE, "true"), "/usr/bin/true: true -a b c (true)");
}
END_TEST

START_TEST(python_always_runs_modules_and_torchruns_scripts)
{
    ck_assert_str_eq(make(PROGRAM_MODULE, "a.b"),
                     "/usr/bin/python3: /usr/bin/python3 -u -m a.b -a b c (a.b)");
    ck_assert_str_eq(make(PROGRAM_SCRIPT, "program"),
                     "/usr/bin/python3: /usr/bin/python3 -u program -a b c (program)");
    ck_assert_str_eq(make(PROGRAM_SCRIPT, "folder"), /* Python runs its __main__.py */
                     "/usr/bin/python3: /usr/bin/python3 -u folder -a b c (folder)");
}
END_TEST

START_TEST(a_double_dash_right_after_the_script_is_dropped)
{
    ck_assert_str_eq(make_dashed(PROGRAM_BY_FILE, "train.py"),
                     "/usr/bin/python3: /usr/bin/python3 -u train.py -a -- (train.py)");
    ck_assert_str_eq(make_dashed(PROGRAM_MODULE, "a.b"),
                     "/usr/bin/python3: /usr/bin/python3 -u -m a.b -a -- (a.b)");
    ck_assert_str_eq(make_dashed(PROGRAM_BY_FILE, "true"), "/usr/bin/true: true -- -a -- (true)");
    ck_assert_str_eq(make_dashed(PROGRAM_EXEC, "./tool.py"),
                     "./tool.py: ./tool.py -- -a -- (./tool.py)");
}
END_TEST

START_TEST(braces_of_executed_programs_are_filled_in)
{
    static const struct {
        enum program_rule rule;
        const char *program;
        enum template_rule templates;
        bool as_torchrun, fills;
    } cases[] = {
        {PROGRAM_BY_FILE, "./program", TEMPLATES_AUTO, false, true},
        {PROGRAM_BY_FILE, "true", TEMPLATES_AUTO, false, true},
        {PROGRAM_EXEC, "./tool.py", TEMPLATES_AUTO, false, true},
        {PROGRAM_BY_FILE, "train.py", TEMPLATES_AUTO, false, false},
        {PROGRAM_MODULE, "a.b", TEMPLATES_AUTO, false, false},
        {PROGRAM_EXEC, "./program", TEMPLATES_AUTO, true, false},
        {PROGRAM_BY_FILE, "train.py", TEMPLATES_YES, false, true},
        {PROGRAM_EXEC, "./program", TEMPLATES_YES, true, true},
        {PROGRAM_BY_FILE, "./program", TEMPLATES_NO, false, false},
    };
    const struct host_env world = fake_host_env_make(&fake_host_env_usual);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *words[] = {(char *)cases[i].program, "{rank}", NULL};
        struct job_spec s = {.templates = cases[i].templates, .as_torchrun = cases[i].as_torchrun};
        ck_assert_int_eq(program_make(cases[i].rule, words, &world, &s, NULL), 0);
        ck_assert_int_eq(s.fills_braces, cases[i].fills);
        ck_assert_int_eq(s.has_templates, cases[i].fills);
        job_spec_fini(&s);
    }
}
END_TEST

START_TEST(run_path_uses_python)
{
    ck_assert_str_eq(make(PROGRAM_RUN_PATH, "tool.py"),
                     "/usr/bin/python3: /usr/bin/python3 -u -c import runpy, sys; del sys.argv[0]; "
                     "runpy.run_path(sys.argv[0], run_name='__main__') tool.py -a b c (tool.py)");
    ck_assert_int_eq(spec.n_program_words, 5);
    ck_assert(!spec.has_templates);
    ck_assert_str_eq(make(PROGRAM_RUN_PATH, "nowhere.py"),
                     "ENOENT no such script: 'nowhere.py'; check its path");
}
END_TEST

START_TEST(a_script_with_a_template_is_not_looked_up)
{
    ck_assert_str_eq(make(PROGRAM_SCRIPT, "train_${local_rank}.py"),
                     "/usr/bin/python3: /usr/bin/python3 -u train_${local_rank}.py -a b c "
                     "(train_${local_rank}.py)");
    ck_assert(spec.has_templates);
    ck_assert_int_eq(spec.n_program_words, 3);
    make(PROGRAM_EXEC, "true");
    ck_assert_int_eq(spec.n_program_words, 1);
    make(PROGRAM_MODULE, "a.b");
    ck_assert_int_eq(spec.n_program_words, 4);
}
END_TEST

START_TEST(an_invalid_program_is_reported_by_its_kind)
{
    static const struct {
        enum program_rule rule;
        const char *name, *error;
    } cases[] = {
        {PROGRAM_BY_FILE, "folder",
         "EACCES 'folder' is a directory, not a program; give the file to run"},
        {PROGRAM_BY_FILE, "folder.py",
         "EACCES 'folder.py' is a directory, not a program; give the file to run"},
        {PROGRAM_EXEC, "app", "EACCES 'app' is a Python script; leave out --no-python"},
        {PROGRAM_BY_FILE, "./pipe.py",
         "EACCES './pipe.py' is a device or a pipe, not a program; give the file to run"},
        {PROGRAM_BY_FILE, "secret.py",
         "EACCES no permission to read or execute 'secret.py'; check its mode and those of its "
         "directories"},
        {PROGRAM_SCRIPT, "secret.py",
         "EACCES no permission to read or execute 'secret.py'; check its mode and those of its "
         "directories"},
        {PROGRAM_BY_FILE, "./secret",
         "EACCES no permission to read or execute './secret'; check its mode and those of its "
         "directories"},
        {PROGRAM_BY_FILE, "blob",
         "EACCES 'blob' is a binary file without the permission to execute it: try chmod +x "
         "./blob"},
        {PROGRAM_EXEC, "notes", "EACCES 'notes' is not executable: try chmod +x ./notes"},
        {PROGRAM_EXEC, "./notes", "EACCES './notes' is not executable: try chmod +x ./notes"},
        {PROGRAM_BY_FILE, "./run.sh", "EACCES './run.sh' is not executable: try chmod +x ./run.sh"},
        {PROGRAM_BY_FILE, "run.sh", "EACCES 'run.sh' is not executable: try chmod +x ./run.sh"},
        {PROGRAM_EXEC, "program",
         "ENOENT no program 'program' in PATH, but it exists in this directory: try ./program"},
        {PROGRAM_BY_FILE, "locked",
         "EACCES the only 'locked' in PATH is not executable; use chmod +x"},
        {PROGRAM_BY_FILE, "nope",
         "ENOENT no program 'nope' in PATH; give its path, or add its directory to PATH"},
        {PROGRAM_BY_FILE, "a/nope", "ENOENT no such program: 'a/nope'; check its path"},
        {PROGRAM_BY_FILE, "a/nope.py", "ENOENT no such script: 'a/nope.py'; check its path"},
        {PROGRAM_EXEC, "nope.py",
         "ENOENT no program 'nope.py' in PATH; give its path, or add its directory to PATH"},
        {PROGRAM_BY_FILE, ".py",
         "ENOENT no program '.py' in PATH; give its path, or add its directory to PATH"},
        {PROGRAM_SCRIPT, "", "ENOENT no such script: ''; check its path"},
        {PROGRAM_EXEC, "",
         "ENOENT no program '' in PATH; give its path, or add its directory to PATH"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_str_eq(make(cases[i].rule, cases[i].name), cases[i].error);
}
END_TEST

START_TEST(the_first_named_python_is_used)
{
    static const struct fake_file files[] = {
        {"/opt/python", FILE_EXECUTABLE},       {"/venv/bin/python3", FILE_EXECUTABLE},
        {"/conda/bin/python", FILE_EXECUTABLE}, {"/usr/bin/python3", FILE_TEXT},
        {"/usr/bin/python", FILE_EXECUTABLE},   {"/usr/bin/pypy3", FILE_EXECUTABLE},
        {"/venv/bin/python", FILE_EXECUTABLE},  {NULL},
    };
    fake.files = files;
    WITH_ENV("PATH=/usr/bin", "PYTHON_EXEC=/opt/python", "VIRTUAL_ENV=/venv");
    make(PROGRAM_MODULE, "m");
    ck_assert_str_eq(spec.path, "/opt/python");
    WITH_ENV("PATH=/usr/bin", "PYTHON_EXEC=pypy3", "VIRTUAL_ENV=/venv");
    make(PROGRAM_MODULE, "m");
    ck_assert_str_eq(spec.path, "/usr/bin/pypy3");
    WITH_ENV("PATH=/usr/bin", "PYTHON_EXEC=", "VIRTUAL_ENV=/venv", "CONDA_PREFIX=/conda");
    make(PROGRAM_MODULE, "m");
    ck_assert_str_eq(spec.path, "/venv/bin/python3");
    ck_assert_str_eq(spec.argv[0], "/venv/bin/python3");
    WITH_ENV("PATH=/usr/bin", "VIRTUAL_ENV=/gone", "CONDA_PREFIX=/conda");
    make(PROGRAM_MODULE, "m");
    ck_assert_str_eq(spec.path, "/conda/bin/python");
    WITH_ENV("PATH=/usr/bin", "VIRTUAL_ENV=");
    make(PROGRAM_MODULE, "m");
    ck_assert_str_eq(spec.path, "/usr/bin/python");
    WITH_ENV("PATH=/bin", "PYTHON_EXEC=/usr/bin/python3");
    ck_assert_str_eq(make(PROGRAM_MODULE, "m"),
                     "ENOENT PYTHON_EXEC is '/usr/bin/python3', which is not an executable "
                     "program; set it to the path of a Python");
    WITH_ENV("PATH=/usr/bin", "PYTHON_EXEC=python9");
    ck_assert_str_eq(make(PROGRAM_MODULE, "m"),
                     "ENOENT PYTHON_EXEC is 'python9', which is not an executable program; set it "
                     "to the path of a Python");
}
END_TEST

/* The Python for a module, ddprun being called so. */
static const char *python_if_called(const char *called_as)
{
    static char *words[] = {"m", NULL};
    struct host_env world = fake_host_env_make(&fake);
    job_spec_fini(&spec);
    spec.called_as = called_as;
    ck_assert_int_eq(program_make(PROGRAM_MODULE, words, &world, &spec, &err), 0);
    return spec.path;
}

START_TEST(a_path_in_an_environment_names_its_python)
{
    static const struct fake_file files[] = {
        {"/a/bin/../pyvenv.cfg", FILE_TEXT},
        {"/a/bin/python3", FILE_EXECUTABLE},
        {"/c/bin/../conda-meta", FILE_DIRECTORY},
        {"/c/bin/python", FILE_EXECUTABLE},
        {"/empty/bin/../pyvenv.cfg", FILE_TEXT},
        {"/usr/bin/python3", FILE_EXECUTABLE},
        {"/active/bin/python3", FILE_EXECUTABLE},
        {"/local/bin/python3", FILE_EXECUTABLE},
        {"bin/../pyvenv.cfg", FILE_TEXT},
        {"bin/python3", FILE_EXECUTABLE},
        {NULL},
    };
    fake.files = files;
    ck_assert_str_eq(python_if_called("/a/bin/ddprun"), "/a/bin/python3");
    ck_assert_str_eq(python_if_called("/c/bin/torchrun"), "/c/bin/python");
    ck_assert_str_eq(python_if_called("bin/ddprun"), "bin/python3");
    ck_assert_str_eq(python_if_called("/empty/bin/ddprun"), "/usr/bin/python3");
    /* it does not belong to an environment */
    ck_assert_str_eq(python_if_called("/local/bin/ddprun"), "/usr/bin/python3");
    ck_assert_str_eq(python_if_called("/ddprun"), "/usr/bin/python3");
    ck_assert_str_eq(python_if_called("ddprun"), "/usr/bin/python3");
    WITH_ENV("PATH=/usr/bin", "VIRTUAL_ENV=/active", "CONDA_PREFIX=/c");
    ck_assert_str_eq(python_if_called("/a/bin/ddprun"), "/a/bin/python3");
    ck_assert_str_eq(python_if_called("ddprun"), "/active/bin/python3");
    WITH_ENV("PATH=/usr/bin", "PYTHON_EXEC=/usr/bin/python3");
    ck_assert_str_eq(python_if_called("/a/bin/ddprun"), "/usr/bin/python3");
}
END_TEST

START_TEST(very_long_names_are_cut_in_messages)
{
    char name[3 * CO_ERROR_TEXT_BYTES];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    const char *said = make(PROGRAM_BY_FILE, name);
    ck_assert_int_eq(strncmp(said, "ENOENT no program 'xxx", 22), 0);
    ck_assert_ptr_nonnull(strstr(said, "x' in PATH; give its path"));
}
END_TEST

TEST_SUITE(program)
{
    Suite *suite = suite_create("program");
    TCase *c = tcase_create("rule");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, python_runs_scripts_and_text_files);
    tcase_add_test(c, a_script_name_with_a_dash_is_not_a_python_option);
    tcase_add_test(c, programs_are_executed);
    tcase_add_test(c, path_precedes_the_current_directory);
    tcase_add_test(c, python_always_runs_modules_and_torchruns_scripts);
    tcase_add_test(c, a_double_dash_right_after_the_script_is_dropped);
    tcase_add_test(c, braces_of_executed_programs_are_filled_in);
    tcase_add_test(c, run_path_uses_python);
    tcase_add_test(c, a_script_with_a_template_is_not_looked_up);
    tcase_add_test(c, an_invalid_program_is_reported_by_its_kind);
    tcase_add_test(c, the_first_named_python_is_used);
    tcase_add_test(c, a_path_in_an_environment_names_its_python);
    tcase_add_test(c, very_long_names_are_cut_in_messages);
    suite_add_tcase(suite, c);
    return suite;
}
