/* replay.c - run a fuzz target over stored inputs, with any compiler.
 *
 *     fuzz_NAME_replay PATH...      files, or directories whose files are all run
 *
 * libFuzzer brings a main() of its own; this one is for the tests, where the corpora run as they
 * are. Exit status: 0 when every input was run, 1 when one could not be read, 2 without any
 * input. */
#include "common/scope.h"
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_INPUT_BYTES = 16 << 20 };

static int replay_file(const char *path, off_t size)
{
    if (size > MAX_INPUT_BYTES) {
        fprintf(stderr, "%s: longer than %d bytes\n", path, MAX_INPUT_BYTES);
        return -EFBIG;
    }
    /* exactly as long as the input, so that a sanitizer sees every byte read too far */
    co_autofree uint8_t *bytes = malloc(size > 0 ? (size_t)size : 1);
    co_autoclose FILE *in = fopen(path, "re");
    if (bytes == NULL || in == NULL || fread(bytes, 1, (size_t)size, in) != (size_t)size) {
        fprintf(stderr, "%s: cannot be read: %s\n", path, strerror(errno));
        return -EIO;
    }
    LLVMFuzzerTestOneInput(bytes, (size_t)size);
    return 1;
}

/* returns how many inputs were run, or -errno */
static int replay(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -errno;
    }
    if (!S_ISDIR(st.st_mode))
        return replay_file(path, st.st_size);

    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort);
    if (n < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -errno;
    }
    int n_run = 0;
    for (int i = 0; i < n; i++) {
        co_autofree char *inner = NULL;
        if (entries[i]->d_name[0] != '.' && n_run >= 0) {
            int rc =
                asprintf(&inner, "%s/%s", path, entries[i]->d_name) < 0 ? -ENOMEM : replay(inner);
            n_run = rc < 0 ? rc : n_run + rc;
        }
        free(entries[i]);
    }
    free(entries);
    return n_run;
}

int main(int argc, char **argv)
{
    int n_run = 0;
    for (int i = 1; i < argc; i++) {
        int rc = replay(argv[i]);
        if (rc < 0)
            return 1;
        n_run += rc;
    }
    printf("%d inputs\n", n_run);
    return n_run > 0 ? 0 : 2;
}
