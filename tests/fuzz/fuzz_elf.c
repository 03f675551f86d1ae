/* fuzz_elf.c - any bytes as a program whose libraries are looked up. Nothing beyond the bytes is
 * read, and each name that is reported is a valid string. */
#include "fuzz.h"
#include "launcher/platform/host_env.h"

#include <string.h>

struct bytes {
    const uint8_t *data;
    size_t size;
};

static int read_at(void *arg, uint64_t offset, void *to, size_t n)
{
    const struct bytes *b = arg;
    require(offset <= b->size && n <= b->size - offset);
    memcpy(to, b->data + offset, n);
    return 0;
}

static void on_name(void *arg, const char *name)
{
    size_t *n_names = arg;
    require(strlen(name) < ELF_NAME_BYTES);
    require(++*n_names <= ELF_MAX_DYNAMIC);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes b = {data, size};
    size_t n_names = 0;
    const struct elf_source file = {.read_at = read_at, .size = size, .arg = &b};
    require(elf_each_needed(&file, on_name, &n_names) <= 0);
    return 0;
}
