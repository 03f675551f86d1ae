/* fuzz_idx.c - IDX files of any bytes, compressed or not. What is accepted is complete. */
#include "examples/mnist/idx.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "examples/shared/failure.h"
#include "fuzz.h"

static void read_as(const char *path, unsigned n_dims)
{
    struct failure why = {""};
    struct idx idx;

    if (idx_read(path, n_dims, &idx, &why) < 0) {
        if (why.text[0] == '\0')
            abort(); /* refused without a reason */
        return;
    }
    volatile uint8_t last =
        idx.data[idx.n_bytes - 1]; /* a sanitizer sees a byte that is not there */
    (void)last;
    if (idx.n_bytes == 0 || idx.n_bytes != (size_t)idx.dims[0] * idx.dims[1] * idx.dims[2])
        abort();
    idx_fini(&idx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("fuzz_idx", MFD_CLOEXEC);

    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    read_as(path, 1);
    read_as(path, 3);
    close(fd);
    return 0;
}
