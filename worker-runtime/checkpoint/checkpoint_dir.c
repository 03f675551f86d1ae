/* checkpoint_dir.c - the files of a checkpoint directory.
 *
 * A step has two files, tensors and a manifest with their digest; without its manifest it is not a
 * checkpoint. checkpoint_dir_write() brings both to the disk under other names, then renames the
 * tensors, then the manifest. */
#include "checkpoint_dir.h"

#include "common/error.h"
#include "common/scope.h"
#include "worker-runtime/files/safetensors_header.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define TENSORS_SUFFIX  ".safetensors"
#define MANIFEST_SUFFIX ".manifest"

static void closedir_at(DIR **d)
{
    if (*d != NULL)
        closedir(*d);
}
#define autoclosedir __attribute__((cleanup(closedir_at)))

/* --- manifests -------------------------------------------------------------------------------- */

size_t checkpoint_manifest_format(const struct checkpoint_manifest *m,
                                  char text[CHECKPOINT_MANIFEST_BYTES])
{
    return (size_t)snprintf(text, CHECKPOINT_MANIFEST_BYTES,
                            "ddp checkpoint 1\nstep %" PRId64 "\nbytes %" PRIu64
                            "\ndigest %016" PRIx64 "\n",
                            m->step, m->bytes, m->digest);
}

int checkpoint_manifest_parse(const char *text, size_t size, struct checkpoint_manifest *ret,
                              struct co_error *err)
{
    char copy[CHECKPOINT_MANIFEST_BYTES] = {0}, again[CHECKPOINT_MANIFEST_BYTES];
    struct checkpoint_manifest m = {.step = -1};
    if (size < sizeof copy)
        memcpy(copy, text, size);
    sscanf(copy, "ddp checkpoint 1\nstep %" SCNd64 "\nbytes %" SCNu64 "\ndigest %" SCNx64, &m.step,
           &m.bytes, &m.digest);
    /* there is one way to write it: whatever sscanf() was lenient about looks different now */
    if (m.step < 0 || checkpoint_manifest_format(&m, again) != size ||
        memcmp(again, text, size) != 0)
        return co_fail(err, -EINVAL, "the manifest is missing or damaged; load an earlier step");
    *ret = m;
    return 0;
}

/* --- names ------------------------------------------------------------------------------------ */

int checkpoint_dir_path(const char *directory, int64_t step, bool manifest,
                        char path[WHOLE_FILE_MAX_PATH], struct co_error *err)
{
    int n = snprintf(path, WHOLE_FILE_MAX_PATH, "%s/step-%012" PRId64 "%s", directory, step,
                     manifest ? MANIFEST_SUFFIX : TENSORS_SUFFIX);
    return n < WHOLE_FILE_MAX_PATH
               ? 0
               : co_fail(err, -EINVAL, "the name of the directory is too long: %.60s...",
                         directory);
}

/* The step in a name that begins as libddp's do, and where the text after the number begins. */
static int64_t step_of(const char *name, const char **ret_rest)
{
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    errno = 0;
    const long long step = strtoll(name + 5, &end, 10);
    *ret_rest = end;
    return errno == 0 && end - name >= 5 + 12 ? step : -1;
}

static bool is_half_written(const char *name)
{
    const char *rest;
    return step_of(name, &rest) >= 0 &&
           (strncmp(rest, TENSORS_SUFFIX WHOLE_FILE_TEMPORARY,
                    strlen(TENSORS_SUFFIX WHOLE_FILE_TEMPORARY)) == 0 ||
            strncmp(rest, MANIFEST_SUFFIX WHOLE_FILE_TEMPORARY,
                    strlen(MANIFEST_SUFFIX WHOLE_FILE_TEMPORARY)) == 0);
}

/* --- the directory ---------------------------------------------------------------------------- */

static int open_directory(const char *directory, DIR **ret, struct co_error *err)
{
    *ret = opendir(directory);
    return *ret != NULL ? 0
                        : co_fail(err, -errno, "cannot read the directory '%s': %s", directory,
                                  strerror(errno));
}

int checkpoint_dir_prepare(const char *directory, struct co_error *err)
{
    char path[WHOLE_FILE_MAX_PATH];
    autoclosedir DIR *d = NULL;
    int code = checkpoint_dir_path(directory, INT64_MAX, true, path, err);
    if (code != 0)
        return code;
    if (mkdir(directory, 0777) < 0 && errno != EEXIST)
        return co_fail(err, -errno, "cannot create the directory '%s': %s", directory,
                       strerror(errno));
    whole_file_sync_directory(directory);
    if ((code = open_directory(directory, &d, err)) != 0)
        return code;
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        if (is_half_written(e->d_name))
            unlinkat(dirfd(d), e->d_name, 0); /* it only takes space */
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

int checkpoint_dir_list(const char *directory, int64_t **ret_steps, size_t *ret_n,
                        struct co_error *err)
{
    autoclosedir DIR *d = NULL;
    co_autofree int64_t *steps = NULL;
    size_t n = 0, room = 0;
    int code = open_directory(directory, &d, err);
    if (code != 0)
        return code;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        const char *rest;
        const int64_t step = step_of(e->d_name, &rest);
        if (step < 0 || strcmp(rest, MANIFEST_SUFFIX) != 0)
            continue;
        if (n == room) {
            room = room > 0 ? 2 * room : 64;
            int64_t *grown = reallocarray(steps, room, sizeof *steps);
            if (grown == NULL)
                return co_fail(err, -ENOMEM, "out of memory");
            steps = grown;
        }
        steps[n++] = step;
    }
    if (n > 0)
        qsort(steps, n, sizeof *steps, by_number);
    *ret_steps = co_take(&steps);
    *ret_n = n;
    return 0;
}

/* Remove what is too old, manifests first: a checkpoint whose removal was interrupted does not
 * count as one. A file that cannot be removed is tried again by the next save. */
static void prune_steps(const char *directory, int64_t saved, int keep_last)
{
    co_autofree int64_t *steps = NULL;
    size_t n = 0;
    if (keep_last <= 0 || checkpoint_dir_list(directory, &steps, &n, NULL) != 0)
        return;
    for (size_t i = 0; i + (size_t)keep_last < n; i++) {
        char path[WHOLE_FILE_MAX_PATH];
        if (steps[i] == saved)
            continue;
        if (checkpoint_dir_path(directory, steps[i], true, path, NULL) == 0)
            unlink(path);
        whole_file_sync_directory(path);
        if (checkpoint_dir_path(directory, steps[i], false, path, NULL) == 0)
            unlink(path);
    }
}

/* If the step was saved before: between the renames of its two files they do not match each other.
 * Without a manifest the files do not count as a checkpoint, instead of being a damaged one. */
static int withdraw_step(const char *directory, int64_t step, struct co_error *err)
{
    char path[WHOLE_FILE_MAX_PATH];
    int code = checkpoint_dir_path(directory, step, true, path, err);
    if (code != 0)
        return code;
    if (unlink(path) == 0)
        whole_file_sync_directory(path);
    else if (errno != ENOENT)
        return co_fail(err, -errno, "cannot replace '%s': %s", path, strerror(errno));
    return 0;
}

/* Bring both files to the disk under their other names. */
static int begin_files(struct whole_file *f, struct whole_file *manifest, const char *directory,
                       int64_t step, const struct ddp_safetensors_tensor *tensors, size_t n,
                       struct co_error *err)
{
    static const struct ddp_safetensors_text texts[] = {{"format", "pt"}};
    char path[WHOLE_FILE_MAX_PATH], text[CHECKPOINT_MANIFEST_BYTES];
    int code = checkpoint_dir_path(directory, step, false, path, err);
    if (code == 0)
        code = safetensors_begin(f, path, tensors, n, texts, 1, err);
    if (code == 0)
        code = whole_file_sync(f, err);
    if (code != 0)
        return code;
    const struct checkpoint_manifest m = {
        .step = step, .bytes = f->digest.n_bytes, .digest = whole_digest_end(&f->digest)};
    const size_t size = checkpoint_manifest_format(&m, text);
    code = checkpoint_dir_path(directory, step, true, path, err);
    if (code == 0)
        code = whole_file_open(manifest, path, err);
    if (code == 0)
        code = whole_file_write(manifest, text, size, err);
    return code == 0 ? whole_file_sync(manifest, err) : code;
}

/* Everything that takes space comes first, so that a full disk is found while the old files
 * exist. */
int checkpoint_dir_write(const char *directory, int64_t step, int keep_last,
                         const struct ddp_safetensors_tensor *tensors, size_t n,
                         struct co_error *err)
{
    struct whole_file f = {.fd = -1}, manifest = {.fd = -1};
    int code = begin_files(&f, &manifest, directory, step, tensors, n, err);
    if (code == 0)
        code = withdraw_step(directory, step, err);
    if (code == 0)
        code = whole_file_commit(&f, err);
    if (code == 0)
        code = whole_file_commit(&manifest, err);
    whole_file_discard(&f);
    whole_file_discard(&manifest);
    if (code == 0)
        prune_steps(directory, step, keep_last);
    return code;
}

/* --- reading ---------------------------------------------------------------------------------- */

static int read_manifest(const char *path, struct checkpoint_manifest *ret, struct co_error *err)
{
    char text[CHECKPOINT_MANIFEST_BYTES];
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text) : -1;
    if (n < 0)
        return co_fail(err, errno == ENOENT ? -EINVAL : -errno, "cannot read '%s': %s", path,
                       strerror(errno));
    int code = checkpoint_manifest_parse(text, (size_t)n, ret, err);
    if (code != 0)
        co_fail_in(err, "'%s'", path);
    return code;
}

static int compare_file(const struct ddp_safetensors *f, const struct checkpoint_manifest *m,
                        const char *path, struct co_error *err)
{
    struct whole_digest digest;
    size_t bytes;
    const void *map = safetensors_mapped(f, &bytes);
    if (bytes != m->bytes)
        return co_fail(err, -EINVAL,
                       "'%s' has %zu bytes, but its manifest records %" PRIu64
                       "; load an earlier step",
                       path, bytes, m->bytes);
    whole_digest_init(&digest);
    whole_digest_add(&digest, map, bytes);
    if (whole_digest_end(&digest) != m->digest)
        return co_fail(
            err, -EINVAL,
            "'%s' is damaged: its digest differs from its manifest's; load an earlier step", path);
    return 0;
}

co_define_auto(ddp_safetensors, ddp_safetensors_close);

int checkpoint_dir_open(const char *directory, int64_t step, struct ddp_safetensors **ret,
                        struct co_error *err)
{
    char path[WHOLE_FILE_MAX_PATH];
    struct checkpoint_manifest m;
    co_auto(ddp_safetensors) f = NULL;
    int code = checkpoint_dir_path(directory, step, true, path, err);
    if (code == 0)
        code = read_manifest(path, &m, err);
    if (code == 0)
        code = checkpoint_dir_path(directory, step, false, path, err);
    if (code == 0 && m.step != step)
        code = co_fail(err, -EINVAL,
                       "the manifest of '%s' belongs to step %" PRId64 "; load another step", path,
                       m.step);
    if (code == 0)
        code = safetensors_open(path, &f, err);
    if (code == 0)
        code = compare_file(f, &m, path, err);
    if (code != 0)
        return code;
    *ret = co_take(&f);
    return 0;
}
