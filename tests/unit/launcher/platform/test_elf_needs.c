/* The libraries of a program: of this one, and of bytes that are none. */
#include "launcher/platform/host_env.h"

#include "common/scope.h"
#include "tests/support/suite.h"

#include <check.h>
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static uint8_t *bytes; /* a copy of this program */
static uint64_t size;
static char names[4096];

static int read_at(void *arg, uint64_t offset, void *to, size_t n)
{
    (void)arg;
    ck_assert(offset <= size && n <= size - offset);
    memcpy(to, bytes + offset, n);
    return 0;
}

static void on_name(void *arg, const char *name)
{
    (void)arg;
    if (strlen(names) + strlen(name) + 2 < sizeof names)
        strcat(strcat(names, name), " ");
}

static int look(uint64_t n)
{
    const struct elf_source file = {.read_at = read_at, .size = n};
    names[0] = '\0';
    return elf_each_needed(&file, on_name, NULL);
}

static void begin(void)
{
    co_autoclose FILE *in = fopen("/proc/self/exe", "re");
    ck_assert(in != NULL && fseek(in, 0, SEEK_END) == 0);
    size = (uint64_t)ftell(in);
    rewind(in);
    bytes = malloc(size);
    ck_assert(bytes != NULL && fread(bytes, 1, size, in) == size);
}

static void end(void)
{
    free(bytes);
}

START_TEST(the_libraries_of_a_program_are_listed)
{
    ck_assert_int_eq(look(size), 0);
    ck_assert_ptr_nonnull(strstr(names, "libc.so.6 "));
}
END_TEST

/* The program header of the dynamic section. */
static Elf64_Phdr *dynamic(void)
{
    Elf64_Ehdr *e = (Elf64_Ehdr *)(void *)bytes;
    Elf64_Phdr *h = (Elf64_Phdr *)(void *)(bytes + e->e_phoff);
    while (h->p_type != PT_DYNAMIC)
        h++;
    return h;
}

START_TEST(a_static_program_has_none)
{
    dynamic()->p_type = PT_NULL;
    ck_assert_int_eq(look(size), 0);
    ck_assert_str_eq(names, "");
}
END_TEST

START_TEST(a_truncated_file_is_not_a_program)
{
    for (uint64_t n = 0; n < sizeof(Elf64_Ehdr) + 56; n++)
        ck_assert_int_eq(look(n), -ENOEXEC);
    ck_assert_int_eq(look(dynamic()->p_offset + 16), -ENOEXEC);
}
END_TEST

START_TEST(another_kind_of_program_is_refused)
{
    static const struct {
        size_t at;
        uint8_t byte;
    } changes[] = {{0, '#'}, {EI_CLASS, ELFCLASS32}, {EI_DATA, ELFDATA2MSB}, {54, 32}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        uint8_t old = bytes[changes[i].at];
        bytes[changes[i].at] = changes[i].byte;
        ck_assert_int_eq(look(size), -ENOEXEC);
        bytes[changes[i].at] = old;
    }
    ck_assert_int_eq(look(size), 0);
}
END_TEST

START_TEST(an_inconsistent_program_is_refused)
{
    const Elf64_Phdr old = *dynamic();
    dynamic()->p_offset = UINT64_MAX - 8;
    ck_assert_int_eq(look(size), -ENOEXEC);
    *dynamic() = old;
    Elf64_Dyn *d = (Elf64_Dyn *)(void *)(bytes + old.p_offset), *needed = NULL, *strings = NULL;
    for (Elf64_Dyn *i = d; i->d_tag != DT_NULL; i++) {
        if (i->d_tag == DT_NEEDED)
            needed = i;
        if (i->d_tag == DT_STRTAB)
            strings = i;
    }
    ck_assert(needed != NULL && strings != NULL);
    const uint64_t name = needed->d_un.d_val;
    needed->d_un.d_val = UINT64_MAX;
    ck_assert_int_eq(look(size), -ENOEXEC);
    needed->d_un.d_val = name;
    strings->d_un.d_ptr = UINT64_MAX - 4;
    ck_assert_int_eq(look(size), -ENOEXEC);
}
END_TEST

TEST_SUITE(elf_needs)
{
    Suite *suite = suite_create("elf_needs");
    TCase *c = tcase_create("elf_needs");
    tcase_add_checked_fixture(c, begin, end);
    tcase_add_test(c, the_libraries_of_a_program_are_listed);
    tcase_add_test(c, a_static_program_has_none);
    tcase_add_test(c, a_truncated_file_is_not_a_program);
    tcase_add_test(c, another_kind_of_program_is_refused);
    tcase_add_test(c, an_inconsistent_program_is_refused);
    suite_add_tcase(suite, c);
    return suite;
}
