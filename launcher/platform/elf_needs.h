/* elf_needs.h - which shared libraries a program was linked with. Pure: the file's bytes come from
 * the caller.
 *
 * Reads what the dynamic linker would: the program headers, the dynamic section, its strings. Only
 * programs of 64-bit, little-endian machines are understood: those that ddprun itself runs on. */
#ifndef DDP_LAUNCHER_PLATFORM_ELF_NEEDS_H
#define DDP_LAUNCHER_PLATFORM_ELF_NEEDS_H

#include <stddef.h>
#include <stdint.h>

enum {
    ELF_NAME_BYTES = 128,   /* of a library; longer ones are cut */
    ELF_MAX_HEADERS = 64,   /* program headers that are looked at */
    ELF_MAX_DYNAMIC = 1024, /* entries of the dynamic section */
};

struct elf_source {
    /* n bytes at this offset, all of them: returns 0; -EIO: there are not so many */
    int (*read_at)(void *arg, uint64_t offset, void *to, size_t n);
    uint64_t size; /* bytes of the file */
    void *arg;
};

/* Call on_name for each library, in order.
 *
 * returns   0 (also if there are none: a static program)
 *           -ENOEXEC   no such program, or one that contradicts itself */
int elf_each_needed(const struct elf_source *file, void (*on_name)(void *arg, const char *name),
                    void *arg);

#endif
