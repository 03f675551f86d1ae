#include "dataset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../shared/atomic_file.h"
#include "../shared/failure.h"
#include "digits.h"

enum { MAX_PATH = 4096, N_FILES = 4 };

static const char *const names[N_FILES] = {
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
};

/* The path of a file as it is there: plain, else with .gz. false: neither is; the path is the plain
 * one. */
static bool find_file(const char *directory, const char *name, char path[MAX_PATH])
{
    snprintf(path, MAX_PATH, "%s/%s.gz", directory, name);
    if (access(path, F_OK) == 0) {
        char plain[MAX_PATH];
        snprintf(plain, sizeof(plain), "%s/%s", directory, name);
        if (access(plain, F_OK) != 0)
            return true;
    }
    snprintf(path, MAX_PATH, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

/* ---- drawing ---- */

/* Training and test images are stretches of one endless series: the test set begins here. */
#define FIRST_TEST_INDEX ((uint64_t)1 << 40)

struct drawing {
    size_t n;
    uint8_t *pixels, *labels; /* owned */
};

static int draw(struct drawing *d, size_t n, uint64_t first, uint64_t seed, struct failure *why)
{
    *d = (struct drawing){n, malloc(n * CONVNET_PIXELS), malloc(n)};
    if (d->pixels == NULL || d->labels == NULL)
        return failure_set(why, "out of memory for %zu images", n);
    for (size_t i = 0; i < n; i++)
        d->labels[i] = digits_draw(seed, first + i, d->pixels + i * CONVNET_PIXELS);
    return 0;
}

static int begin_file(struct atomic_file *f, const char *directory, int i, const struct drawing *d,
                      struct failure *why)
{
    const uint32_t dims[] = {(uint32_t)d->n, CONVNET_SIDE, CONVNET_SIDE};
    const bool images = i % 2 == 0;
    char path[MAX_PATH];

    find_file(directory, names[i], path);
    return idx_begin(f, path, dims, images ? 3 : 1, images ? d->pixels : d->labels, why);
}

/* Write all four files, then give them their names: an interrupted run leaves no file, not half of
 * them. */
static int write_drawings(const char *directory, const struct drawing drawings[2],
                          struct failure *why)
{
    struct atomic_file files[N_FILES];
    int rc = 0, n_begun = 0, n_done = 0;

    while (rc == 0 && n_begun < N_FILES) {
        rc = begin_file(&files[n_begun], directory, n_begun, &drawings[n_begun / 2], why);
        n_begun++;
    }
    while (rc == 0 && n_done < N_FILES)
        rc = atomic_file_commit(&files[n_done++], why);
    for (int i = 0; rc < 0 && i < n_begun; i++) {
        atomic_file_discard(&files[i]);
        if (i < n_done)
            unlink(files[i].path);
    }
    return rc;
}

int dataset_prepare(const char *directory, size_t n_train, size_t n_test, uint64_t seed,
                    bool *ret_drawn, struct failure *why)
{
    char path[MAX_PATH];
    int n_found = 0;
    const char *found = NULL, *missing = NULL;

    *ret_drawn = false;
    if (strlen(directory) > MAX_PATH - 64)
        return failure_set(why, "the name of the data directory is too long: %.60s...", directory);
    for (int i = 0; i < N_FILES; i++) {
        if (find_file(directory, names[i], path)) {
            n_found++;
            found = names[i];
        } else {
            missing = names[i];
        }
    }
    if (n_found == N_FILES)
        return 0;
    if (n_found > 0)
        return failure_set(why,
                           "'%s' has %s, but not %s[.gz]: complete the dataset, or use an empty "
                           "directory to generate one",
                           directory, found, missing);
    if (mkdir(directory, 0777) < 0 && errno != EEXIST)
        return failure_set(why, "cannot create the data directory '%s': %s", directory,
                           strerror(errno));
    struct drawing drawings[2] = {0};
    int rc = draw(&drawings[0], n_train, 0, seed, why);
    if (rc == 0)
        rc = draw(&drawings[1], n_test, FIRST_TEST_INDEX, seed, why);
    if (rc == 0)
        rc = write_drawings(directory, drawings, why);
    for (int i = 0; i < 2; i++) {
        free(drawings[i].pixels);
        free(drawings[i].labels);
    }
    *ret_drawn = rc == 0;
    return rc;
}

/* ---- reading ---- */

static int read_part(const char *directory, const char *const part_names[2],
                     struct dataset_part *part, struct failure *why)
{
    char images_path[MAX_PATH], labels_path[MAX_PATH];

    find_file(directory, part_names[0], images_path);
    find_file(directory, part_names[1], labels_path);
    if (idx_read(images_path, 3, &part->pixels, why) < 0 ||
        idx_read(labels_path, 1, &part->labels, why) < 0)
        return -1;
    if (part->pixels.dims[1] != CONVNET_SIDE || part->pixels.dims[2] != CONVNET_SIDE)
        return failure_set(why, "'%s': images of %u x %u pixels: the network expects %d x %d",
                           images_path, part->pixels.dims[1], part->pixels.dims[2], CONVNET_SIDE,
                           CONVNET_SIDE);
    if (part->pixels.dims[0] != part->labels.dims[0])
        return failure_set(why, "'%s' has %u images, but '%s' has %u labels", images_path,
                           part->pixels.dims[0], labels_path, part->labels.dims[0]);
    part->n = part->pixels.dims[0];
    for (size_t i = 0; i < part->n; i++)
        if (part->labels.data[i] >= CONVNET_CLASSES)
            return failure_set(why, "'%s': label %zu is %u: expected 0 to %d", labels_path, i,
                               part->labels.data[i], CONVNET_CLASSES - 1);
    part->images =
        (struct convnet_images){.pixels = part->pixels.data, .labels = part->labels.data};
    return 0;
}

int dataset_read(const char *directory, struct dataset *ret_set, struct failure *why)
{
    struct dataset set = {0};

    if (strlen(directory) > MAX_PATH - 64)
        return failure_set(why, "the name of the data directory is too long: %.60s...", directory);
    if (read_part(directory, &names[0], &set.train, why) < 0 ||
        read_part(directory, &names[2], &set.test, why) < 0) {
        dataset_fini(&set);
        return -1;
    }
    *ret_set = set;
    return 0;
}

void dataset_fini(struct dataset *set)
{
    struct dataset_part *parts[] = {&set->train, &set->test};

    for (int i = 0; i < 2; i++) {
        idx_fini(&parts[i]->pixels);
        idx_fini(&parts[i]->labels);
    }
    *set = (struct dataset){0};
}
