#include "elf_needs.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

/* Both read-only tables of a program that is about to be asked for its strings. */
struct tables {
    Elf64_Phdr headers[ELF_MAX_HEADERS];
    size_t n_headers;
    uint64_t strings_at, strings_size; /* in the file */
};

static int read_at(const struct elf_source *file, uint64_t offset, void *to, size_t n)
{
    if (offset > file->size || n > file->size - offset)
        return -ENOEXEC;
    return file->read_at(file->arg, offset, to, n) == 0 ? 0 : -ENOEXEC;
}

static int read_headers(const struct elf_source *file, struct tables *t)
{
    Elf64_Ehdr e;
    int rc = read_at(file, 0, &e, sizeof e);
    if (rc < 0 || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 || e.e_ident[EI_CLASS] != ELFCLASS64 ||
        e.e_ident[EI_DATA] != ELFDATA2LSB || e.e_phentsize != sizeof t->headers[0])
        return -ENOEXEC;
    t->n_headers = e.e_phnum < ELF_MAX_HEADERS ? e.e_phnum : ELF_MAX_HEADERS;
    return read_at(file, e.e_phoff, t->headers, t->n_headers * sizeof t->headers[0]);
}

/* Addresses are those of the program in memory: where are they in the file? */
static int find_in_file(const struct tables *t, uint64_t address, uint64_t *ret)
{
    for (size_t i = 0; i < t->n_headers; i++) {
        const Elf64_Phdr *h = &t->headers[i];
        if (h->p_type == PT_LOAD && address >= h->p_vaddr && address - h->p_vaddr < h->p_filesz &&
            h->p_offset <= UINT64_MAX - (address - h->p_vaddr)) {
            *ret = h->p_offset + (address - h->p_vaddr);
            return 0;
        }
    }
    return -ENOEXEC;
}

static int find_strings(const Elf64_Dyn *dynamic, size_t n, struct tables *t)
{
    uint64_t address = 0;
    for (size_t i = 0; i < n && dynamic[i].d_tag != DT_NULL; i++) {
        if (dynamic[i].d_tag == DT_STRTAB)
            address = dynamic[i].d_un.d_ptr;
        else if (dynamic[i].d_tag == DT_STRSZ)
            t->strings_size = dynamic[i].d_un.d_val;
    }
    return find_in_file(t, address, &t->strings_at);
}

static int read_name(const struct elf_source *file, const struct tables *t, uint64_t at,
                     char name[ELF_NAME_BYTES])
{
    if (at >= t->strings_size || t->strings_at > UINT64_MAX - at)
        return -ENOEXEC;
    uint64_t left = t->strings_size - at, offset = t->strings_at + at;
    if (offset > file->size)
        return -ENOEXEC;
    if (left > file->size - offset)
        left = file->size - offset;
    size_t n = left < ELF_NAME_BYTES - 1 ? (size_t)left : ELF_NAME_BYTES - 1;
    name[n] = '\0';
    return read_at(file, offset, name, n);
}

static int tell_names(const struct elf_source *file, const Elf64_Phdr *where, struct tables *t,
                      void (*on_name)(void *arg, const char *name), void *arg)
{
    Elf64_Dyn dynamic[ELF_MAX_DYNAMIC];
    char name[ELF_NAME_BYTES];
    size_t n = where->p_filesz / sizeof dynamic[0];
    n = n < ELF_MAX_DYNAMIC ? n : ELF_MAX_DYNAMIC;
    int rc = read_at(file, where->p_offset, dynamic, n * sizeof dynamic[0]);
    if (rc == 0)
        rc = find_strings(dynamic, n, t);
    for (size_t i = 0; rc == 0 && i < n && dynamic[i].d_tag != DT_NULL; i++) {
        if (dynamic[i].d_tag != DT_NEEDED)
            continue;
        rc = read_name(file, t, dynamic[i].d_un.d_val, name);
        if (rc == 0)
            on_name(arg, name);
    }
    return rc;
}

int elf_each_needed(const struct elf_source *file, void (*on_name)(void *arg, const char *name),
                    void *arg)
{
    struct tables t = {.n_headers = 0};
    int rc = read_headers(file, &t);
    for (size_t i = 0; rc == 0 && i < t.n_headers; i++)
        if (t.headers[i].p_type == PT_DYNAMIC)
            return tell_names(file, &t.headers[i], &t, on_name, arg);
    return rc;
}
