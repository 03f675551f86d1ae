#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../shared/failure.h"

enum { PERIOD_BYTES = TEXT_BLOCK * TEXT_PERIOD };

/* ---- reading ---- */

struct seen { /* files that were read */
    dev_t device;
    ino_t inode;
};

struct reader {
    struct text *text;
    struct seen *seen; /* owned; text->n_files of them */
    struct failure *why;
};

static bool was_read(const struct reader *r, const struct stat *st)
{
    for (size_t i = 0; i < r->text->n_files; i++)
        if (r->seen[i].device == st->st_dev && r->seen[i].inode == st->st_ino)
            return true;
    return false;
}

/* Add the file to the list, and make space for it. */
static int make_room(struct reader *r, const char *path, const struct stat *st)
{
    struct text *t = r->text;

    if (t->n_files == TEXT_MAX_FILES || st->st_size > TEXT_MAX_BYTES - (off_t)t->n)
        return failure_set(r->why, "'%s' exceeds the maximum of %d files or %d bytes", path,
                           TEXT_MAX_FILES, TEXT_MAX_BYTES);
    struct seen *seen = reallocarray(r->seen, t->n_files + 1, sizeof(*seen));
    if (seen == NULL)
        return failure_set(r->why, "out of memory for '%s'", path);
    r->seen = seen;
    seen[t->n_files++] = (struct seen){st->st_dev, st->st_ino};
    uint8_t *bytes = realloc(t->bytes, t->n + (size_t)st->st_size + 1);
    if (bytes == NULL)
        return failure_set(r->why, "out of memory for '%s'", path);
    t->bytes = bytes;
    return 0;
}

/* As many bytes as it had a moment ago, or fewer. */
static int read_file(struct reader *r, const char *path, int fd, size_t size)
{
    struct text *t = r->text;

    for (const size_t end = t->n + size; t->n < end;) {
        ssize_t got = read(fd, t->bytes + t->n, end - t->n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return failure_set(r->why, "cannot read '%s': %s", path, strerror(errno));
        if (got == 0)
            break;
        t->n += (size_t)got;
    }
    return 0;
}

static int add_path(struct reader *r, const char *path, bool listed);

static int is_visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static int add_directory(struct reader *r, const char *path)
{
    struct dirent **entries;
    int n = scandir(path, &entries, is_visible, alphasort), rc = 0;

    if (n < 0)
        return failure_set(r->why, "cannot read '%s': %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        char file[4096];
        if (rc == 0 &&
            snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name) < (int)sizeof(file))
            rc = add_path(r, file, true);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

/* listed   found in a directory: what is not a file is skipped */
static int add_path(struct reader *r, const char *path, bool listed)
{
    struct stat st;
    int rc = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0 || fstat(fd, &st) < 0)
        rc = failure_set(r->why, "cannot read '%s': %s", path, strerror(errno));
    else if (S_ISREG(st.st_mode) && !was_read(r, &st))
        rc = make_room(r, path, &st) < 0 ? -1 : read_file(r, path, fd, (size_t)st.st_size);
    else if (S_ISDIR(st.st_mode) && !listed)
        rc = add_directory(r, path);
    else if (!S_ISREG(st.st_mode) && !listed)
        rc = failure_set(r->why, "cannot read '%s': not a file or directory", path);
    if (fd >= 0)
        close(fd);
    return rc;
}

int text_read(const char *const *paths, size_t n_paths, struct text *ret_text, struct failure *why)
{
    struct text t = {0};
    struct reader r = {.text = &t, .why = why};
    int rc = 0;

    for (size_t i = 0; i < n_paths && rc == 0; i++)
        rc = add_path(&r, paths[i], false);
    free(r.seen);
    if (rc < 0) {
        text_fini(&t);
        return -1;
    }
    *ret_text = t;
    return 0;
}

void text_fini(struct text *t)
{
    free(t->bytes);
    *t = (struct text){0};
}

/* ---- what is learnt, and what is held out ---- */

/* Stretches that begin in a part of so many bytes. */
static size_t count_in(size_t bytes, size_t length)
{
    const size_t learnt = bytes < TEXT_LEARNT ? bytes : TEXT_LEARNT;

    return learnt < length ? 0 : learnt - length + 1;
}

size_t text_count(const struct text *t, size_t length)
{
    return t->n / PERIOD_BYTES * count_in(PERIOD_BYTES, length) +
           count_in(t->n % PERIOD_BYTES, length);
}

const uint8_t *text_at(const struct text *t, size_t length, size_t i)
{
    const size_t each = count_in(PERIOD_BYTES, length);

    return t->bytes + i / each * PERIOD_BYTES + i % each;
}

size_t text_count_held_out(const struct text *t)
{
    return t->n / PERIOD_BYTES;
}

const uint8_t *text_held_out(const struct text *t, size_t i)
{
    return t->bytes + i * PERIOD_BYTES + TEXT_LEARNT;
}
