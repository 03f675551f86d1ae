/* The dumps of torch's flight recorder. flight_recorder_ask() writes a byte to the pipe of each
 * rank (ask_rank()); flight_recorder_look() takes each dump through its states: the recorder waits
 * for its file (await()); the file has changed since the byte was written; it has not changed for a
 * while; it is copied, a piece with each look (copy_some()); the copy is complete. Read
 * flight_recorder_look() first.
 *
 * The deadline also ends copies that have begun: the caller has a deadline of its own. */
#include "flight_recorder.h"

#include "launcher/platform/json_value.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    COPY_BYTES = 64 << 10, /* at a time */
    LOOK_BYTES = 8 << 20,  /* with a look, of all files */
    LINES = 8,             /* of ranks that get a line each */
};

enum flight_state {
    FLIGHT_WATCHED, /* not requested; the earlier state of the file is known */
    FLIGHT_NONE,    /* there will be no file: `note` has the reason */
    FLIGHT_AWAITED, /* the rank was asked */
    FLIGHT_COPIED,  /* it is being copied */
    FLIGHT_THERE,
};

/* What distinguishes a file from its earlier state. */
struct mark {
    uint64_t inode;
    int64_t size; /* -1: no file */
    struct timespec changed;
};

struct flight {
    int rank;
    enum flight_state state;
    struct mark now;
    uint64_t changed_ms; /* the last time that it did; 0: not since the rank was asked */
    int from, to;        /* while it is copied */
    int64_t n_copied;
    bool is_gathered; /* it is in the job's directory; else where torch writes it */
    char note[96];
};

struct flights {
    struct flight_recorder_names names;
    char *dir; /* owned; NULL: nothing is copied */
    bool has_dir;
    uint64_t end_ms;
    int n;
    struct flight list[];
};

/* --- Names --- */

static bool set_name(char name[PATH_MAX], const char *text)
{
    return snprintf(name, PATH_MAX, "%s", text) < PATH_MAX - 32; /* a number follows it */
}

static const char *said(const char *(*get)(const char *), const char *variable)
{
    const char *value = get(variable);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Where torch writes by default. Without a home directory that is below /tmp/.cache, which any user
 * may have made: dumps there are not read. */
static bool set_usual_name(char name[PATH_MAX], const char *(*get)(const char *))
{
    static const char last[] = "/torch/comm_lib_trace_rank_";
    const char *cache = said(get, "XDG_CACHE_HOME"), *home = said(get, "HOME");
    char text[PATH_MAX + sizeof last + 8];
    if (cache == NULL && home == NULL)
        return false;
    if (cache != NULL)
        snprintf(text, sizeof text, "%s%s", cache, last);
    else
        snprintf(text, sizeof text, "%s/.cache%s", home, last);
    return set_name(name, text);
}

void flight_recorder_find_names(struct flight_recorder_names *ret,
                                const char *(*get)(const char *variable))
{
    const char *pipe = said(get, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
    const char *file = said(get, "TORCH_FR_DUMP_TEMP_FILE");
    *ret = (struct flight_recorder_names){0};
    if (file == NULL)
        file = said(get, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
    if (!(file != NULL ? set_name(ret->file, file) : set_usual_name(ret->file, get)))
        ret->file[0] = '\0';
    ret->is_chosen = file != NULL && ret->file[0] != '\0';
    if (pipe == NULL || ret->file[0] == '\0' || !set_name(ret->pipe, pipe))
        ret->pipe[0] = '\0';
}

static const char *file_name(const struct flights *f, int rank, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s%d", f->names.file, rank);
    return path;
}

static const char *copy_name(const struct flights *f, int rank, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/rank_%d", f->dir, rank);
    return path;
}

/* --- Asking --- */

static void give_up(struct flight *flight, const char *why)
{
    flight->state = FLIGHT_NONE;
    snprintf(flight->note, sizeof flight->note, "%s", why);
}

/* In a world-writable directory any user may lay out a file or a link: neither is a dump. */
static bool is_dump(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_uid == geteuid();
}

static struct mark stat_dump(const char *path)
{
    struct stat st;
    if (lstat(path, &st) < 0 || !is_dump(&st))
        return (struct mark){.size = -1};
    return (struct mark){st.st_ino, st.st_size, st.st_mtim};
}

/* In a world-writable directory any user may replace it: no link is followed, and only a pipe of
 * our own user is written to. The write does not wait for the reader. */
static int write_byte(const char *pipe)
{
    struct stat st;
    co_autoclose_fd int fd = open(pipe, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode) || st.st_uid != geteuid())
        return -EPERM;
    return write(fd, "1", 1) < 0 && errno != EAGAIN ? -errno : 0;
}

static void ask_rank(const struct flights *f, struct flight *flight)
{
    char path[PATH_MAX];
    flight->state = FLIGHT_AWAITED;
    snprintf(path, sizeof path, "%s%d.pipe", f->names.pipe, flight->rank);
    switch (write_byte(path)) {
    case 0:
        break;
    case -ENOENT:
    case -ENXIO: /* a pipe without a reader */
        give_up(flight, "no NCCL process group is listening on its pipe");
        break;
    default:
        give_up(flight, "cannot write to its pipe");
    }
}

int flight_recorder_watch(const struct flight_recorder_names *names, const int *ranks, int n,
                          const char *dir, struct flights **ret, struct co_error *err)
{
    char path[PATH_MAX];
    struct flights *f = calloc(1, sizeof *f + (size_t)n * sizeof f->list[0]);
    char *copy = dir != NULL ? strdup(dir) : NULL;
    if (f == NULL || (dir != NULL && copy == NULL)) {
        free(f);
        free(copy);
        return co_fail(err, -ENOMEM, "out of memory");
    }
    f->names = *names;
    f->dir = copy;
    f->n = n;
    for (int i = 0; i < n; i++)
        f->list[i] = (struct flight){
            .rank = ranks[i], .now = stat_dump(file_name(f, ranks[i], path)), .from = -1, .to = -1};
    *ret = f;
    return 0;
}

int flight_recorder_ask(const struct flight_recorder_names *names, const int *ranks, int n,
                        const char *dir, uint64_t now_ms, struct flights **ret,
                        struct co_error *err)
{
    int rc = flight_recorder_watch(names, ranks, n, dir, ret, err);
    if (rc < 0)
        return rc;
    (*ret)->end_ms = now_ms + FLIGHTS_WAIT_MS;
    for (int i = 0; i < n; i++)
        ask_rank(*ret, &(*ret)->list[i]);
    return 0;
}

static void close_files(struct flight *flight)
{
    co_close_fd(&flight->from);
    co_close_fd(&flight->to);
}

void flight_recorder_destroy(struct flights *f)
{
    if (f == NULL)
        return;
    for (int i = 0; i < f->n; i++)
        close_files(&f->list[i]);
    free(f->dir);
    free(f);
}

/* --- Gathering --- */

static bool is_same(const struct mark *a, const struct mark *b)
{
    return a->inode == b->inode && a->size == b->size && a->changed.tv_sec == b->changed.tv_sec &&
           a->changed.tv_nsec == b->changed.tv_nsec;
}

/* Whatever happens to the copy, the original file exists. A partial copy is not a dump: fr_trace,
 * which reads every file in the directory, would fail at it. */
static void end_copy(const struct flights *f, struct flight *flight, bool is_gathered)
{
    char path[PATH_MAX];
    if (!is_gathered && flight->to >= 0)
        unlink(copy_name(f, flight->rank, path));
    close_files(flight);
    flight->state = FLIGHT_THERE;
    flight->is_gathered = is_gathered;
}

/* The job may have configured torch to write into that very directory. */
static bool is_one_file(int a, int b)
{
    struct stat one, other;
    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

static void open_copy(const struct flights *f, struct flight *flight)
{
    char path[PATH_MAX];
    struct stat st;
    flight->from =
        open(file_name(f, flight->rank, path), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (flight->from >= 0 && fstat(flight->from, &st) == 0 && is_dump(&st))
        flight->to = open(copy_name(f, flight->rank, path),
                          O_WRONLY | O_CREAT | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (flight->to >= 0 && is_one_file(flight->from, flight->to))
        end_copy(f, flight, true);
    else if (flight->to < 0 || ftruncate(flight->to, 0) < 0)
        end_copy(f, flight, false);
}

static void begin_copy(struct flights *f, struct flight *flight)
{
    flight->state = FLIGHT_COPIED;
    if (f->dir != NULL && !f->has_dir)
        f->has_dir = mkdir(f->dir, 0777) == 0 || errno == EEXIST;
    if (f->dir == NULL || !f->has_dir || flight->now.size > FLIGHTS_MAX_BYTES)
        end_copy(f, flight, false);
    else
        open_copy(f, flight);
}

/* returns   bytes; 0: it is over */
static size_t copy_some(const struct flights *f, struct flight *flight)
{
    char bytes[COPY_BYTES];
    ssize_t n = read(flight->from, bytes, sizeof bytes);
    if (n == 0)
        end_copy(f, flight, true);
    else if (n < 0 || write(flight->to, bytes, (size_t)n) != n ||
             (flight->n_copied += n) > FLIGHTS_MAX_BYTES)
        end_copy(f, flight, false);
    return flight->state == FLIGHT_COPIED ? (size_t)n : 0;
}

/* An empty file is one that has just been opened. */
static void await(struct flights *f, struct flight *flight, uint64_t now_ms)
{
    char path[PATH_MAX];
    struct mark now = stat_dump(file_name(f, flight->rank, path));
    if (!is_same(&now, &flight->now))
        flight->changed_ms = now_ms;
    flight->now = now;
    if (flight->changed_ms != 0 && now.size > 0 && now_ms - flight->changed_ms >= FLIGHTS_QUIET_MS)
        begin_copy(f, flight);
    else if (now_ms >= f->end_ms)
        give_up(flight, "it wrote no dump");
}

bool flight_recorder_look(struct flights *f, uint64_t now_ms)
{
    bool is_awaited = false;
    size_t n_copied = 0;
    for (int i = 0; f != NULL && i < f->n; i++) {
        struct flight *flight = &f->list[i];
        if (flight->state == FLIGHT_AWAITED)
            await(f, flight, now_ms);
        while (flight->state == FLIGHT_COPIED && n_copied < LOOK_BYTES)
            n_copied += copy_some(f, flight);
        if (flight->state == FLIGHT_COPIED && now_ms >= f->end_ms)
            end_copy(f, flight, false);
        is_awaited |= flight->state == FLIGHT_AWAITED || flight->state == FLIGHT_COPIED;
    }
    return is_awaited;
}

void flight_recorder_take(struct flights *f)
{
    char path[PATH_MAX];
    size_t n_copied = 0;
    for (int i = 0; i < f->n; i++) {
        struct flight *flight = &f->list[i];
        struct mark now = stat_dump(file_name(f, flight->rank, path));
        if (now.size <= 0 || is_same(&now, &flight->now))
            continue;
        flight->now = now;
        begin_copy(f, flight);
        while (flight->state == FLIGHT_COPIED && n_copied < FLIGHTS_MAX_END_BYTES)
            n_copied += copy_some(f, flight);
        if (flight->state == FLIGHT_COPIED)
            end_copy(f, flight, false);
    }
}

/* --- In words --- */

static const char *path_of(const struct flights *f, const struct flight *flight,
                           char path[PATH_MAX])
{
    return flight->is_gathered ? copy_name(f, flight->rank, path)
                               : file_name(f, flight->rank, path);
}

/* How many there is something to report about. */
static int count_flights(const struct flights *f, bool are_gathered)
{
    int n = 0;
    for (int i = 0; i < f->n; i++)
        n += f->list[i].state != FLIGHT_WATCHED && f->list[i].is_gathered == are_gathered;
    return n;
}

/* Those that the directory lacks: only some of them, since all are most likely alike. */
static void print_others(const struct flights *f, FILE *out)
{
    char path[PATH_MAX];
    int n_printed = 0;
    for (int i = 0; i < f->n && n_printed < LINES; i++) {
        const struct flight *flight = &f->list[i];
        if (flight->is_gathered || flight->state == FLIGHT_WATCHED)
            continue;
        fprintf(out, "  rank %d: %s\n", flight->rank,
                flight->state == FLIGHT_THERE ? path_of(f, flight, path) : flight->note);
        n_printed++;
    }
    if (count_flights(f, false) > n_printed)
        fprintf(out, "  and %d more\n", count_flights(f, false) - n_printed);
}

void flight_recorder_print(const struct flights *f, FILE *out)
{
    int n_gathered = f != NULL ? count_flights(f, true) : 0;
    if (f == NULL || n_gathered + count_flights(f, false) == 0)
        return;
    fprintf(out, "torch's flight recorder:\n");
    if (n_gathered > 0)
        fprintf(out,
                "  dumps of %d rank%s; to compare them, run\n    python -m "
                "torch.distributed.flight_recorder.fr_trace %s\n",
                n_gathered, n_gathered == 1 ? "" : "s", f->dir);
    print_others(f, out);
}

json_t *flight_recorder_json_make(const struct flights *f)
{
    json_t *list = json_array();
    for (int i = 0; f != NULL && i < f->n; i++) {
        const struct flight *flight = &f->list[i];
        char path[PATH_MAX];
        bool is_there = flight->state == FLIGHT_THERE;
        json_array_append_new(list,
                              json_pack("{s:i,s:o,s:o}", "rank", flight->rank, "file",
                                        json_value_text(is_there ? path_of(f, flight, path) : NULL),
                                        "note", json_value_text(is_there ? NULL : flight->note)));
    }
    return list;
}
