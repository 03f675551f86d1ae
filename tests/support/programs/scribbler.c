/* scribbler - ranks that overwrite the memory that they share with ddprun:
 *
 *     scribbler SEED MS joins|recovers END...
 *
 * Each rank joins as libddp does, writes random words all over the control segment and its user
 * segment for MS milliseconds, and ends with the END of its local rank: an exit status, or
 * 128 + N for signal N; ranks with another END than 0 end after half of that time. In later
 * generations all END are 0. With "recovers", ranks whose END is 0 outlive the others: they ask for
 * the next generation after MS, and do the same in it. At its end a rank writes the time of
 * CLOCK_MONOTONIC in ns to the FIFO that TEST_FIFO names, at its start "up". */
#include "segments/control.h"
#include "segments/node_socket.h"
#include "tests/support/chance.h"

#include <ddp/env.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 4096, OWN_BYTES = 1 << 16, BROKEN = 99 /* status of a scribbler that cannot run */ };

struct area {
    uint8_t *at;
    size_t bytes;
};

static _Noreturn void give_up(const char *what)
{
    perror(what);
    _exit(BROKEN);
}

static long number_of(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? strtol(text, NULL, 10) : -1;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void tell(const char *text)
{
    int fd = open(getenv("TEST_FIFO"), O_WRONLY | O_CLOEXEC);
    char line[64];
    int n = snprintf(line, sizeof line, "%s\n", text);
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        give_up("TEST_FIFO");
    close(fd);
}

/* --- joining ---------------------------------------------------------------------------------- */

static struct area map_all(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        give_up("fstat");
    void *at = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        give_up("mmap");
    return (struct area){at, (size_t)st.st_size};
}

/* returns the control segment; *ret_generation: that of the answer */
static struct area join(int sock, bool recovers, uint32_t *ret_generation, struct area *ret_own)
{
    int own_fd = memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (own_fd < 0 || ftruncate(own_fd, OWN_BYTES) != 0 ||
        fcntl(own_fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
        give_up("memfd");
    const unsigned local_rank = (unsigned)number_of(DDP_ENV_LOCAL_RANK);
    const struct node_message hello = {.magic = NODE_SOCKET_MAGIC,
                                       .version = NODE_SOCKET_VERSION,
                                       .type = NODE_HELLO,
                                       .local_rank = local_rank,
                                       .n_local = (uint32_t)number_of(DDP_ENV_LOCAL_WORLD_SIZE),
                                       .bytes = OWN_BYTES,
                                       .generation = *ret_generation,
                                       .flags = recovers ? NODE_RECOVERS : 0};
    struct node_message answer;
    int fd;
    if (node_message_send(sock, &hello, own_fd) != 0 ||
        node_message_receive(sock, &answer, &fd, NULL) != 1 || answer.type != NODE_CONTROL)
        give_up("HELLO");
    *ret_own = map_all(own_fd);
    struct area control = map_all(fd);
    struct control_head *head = (struct control_head *)control.at;
    atomic_store(&head->line[answer.local_rank].joined, 1);
    *ret_generation = answer.generation;
    close(own_fd);
    close(fd);
    return control;
}

/* --- writing ---------------------------------------------------------------------------------- */

static uint64_t draw_word(struct chance *c)
{
    const uint64_t any = chance_draw(c, UINT64_MAX);
    switch (chance_draw(c, 8)) {
    case 0:
        return any;
    case 1:
        return any % 16;
    case 2:
        return 0;
    case 3:
        return UINT64_MAX - any % 16;
    case 4:
        return UINT64_C(1) << any % 64;
    case 5: /* what the owner of a mutex looks like */
        return (any % 2 == 0 ? (uint64_t)getpid() : (uint64_t)getppid()) |
               (any % 4 < 2 ? FUTEX_WAITERS : 0) | (any % 8 < 2 ? FUTEX_OWNER_DIED : 0);
    case 6: /* an address, which may be one of ddprun as well */
        return (uint64_t)(uintptr_t)&any + any % 65536 * 8;
    default: /* a small count in each half */
        return (any % 64) << 32 | any % 8;
    }
}

/* Mostly in the head and the lines, which come first, and which ddprun reads. */
static size_t draw_place(struct chance *c, const struct area *a)
{
    const size_t heads = sizeof(struct control_head), lines = 4 * sizeof(struct control_line);
    const size_t ends[] = {heads, lines, lines, lines, lines, a->bytes};
    const size_t end = ends[chance_draw(c, sizeof ends / sizeof *ends)];
    return chance_draw(c, (end < a->bytes ? end : a->bytes) / 4 - 1) * 4;
}

static void write_words(struct chance *c, const struct area *a)
{
    for (int i = 0; i < WORDS; i++) {
        const uint64_t word = draw_word(c);
        memcpy(a->at + draw_place(c, a), &word, chance_draw(c, 2) == 0 ? 4 : 8);
    }
    if (chance_draw(c, 256) == 0)
        madvise(a->at, a->bytes, MADV_REMOVE);
}

static void scribble(struct chance *c, const struct area *control, const struct area *own,
                     uint64_t until_ns)
{
    while (now_ns() < until_ns) {
        write_words(c, control);
        write_words(c, own);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* others need the CPU as well */
    }
}

static _Noreturn void end_as(int status)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, now_ns());
    tell(text);
    if (status > 128)
        raise(status - 128);
    _exit(status);
}

int main(int argc, char **argv)
{
    const int sock = (int)number_of(DDP_ENV_NODE_FD);
    const int local_rank = (int)number_of(DDP_ENV_LOCAL_RANK);
    uint32_t generation = (uint32_t)number_of(DDP_ENV_RESTART_COUNT);
    if (argc < 5 || local_rank < 0 || local_rank >= argc - 4 || sock < 0) {
        fprintf(stderr, "usage: ddprun -n N scribbler SEED MS joins|recovers END...\n");
        return BROKEN;
    }
    struct chance c =
        chance_from(strtoull(argv[1], NULL, 10) * 1000003 + (unsigned)local_rank * 97 + generation);
    const uint64_t ns = strtoull(argv[2], NULL, 10) * 1000000;
    const bool recovers = strcmp(argv[3], "recovers") == 0;
    const int end = generation == 0 ? (int)strtol(argv[4 + local_rank], NULL, 10) : 0;
    const bool is_first = generation == 0;
    struct area control, own;
    generation = 0; /* of a HELLO: the newest */
    control = join(sock, recovers, &generation, &own);
    tell("up");
    scribble(&c, &control, &own, now_ns() + (end != 0 ? ns / 2 : ns));
    if (end == 0 && recovers && is_first) {
        generation++;
        control = join(sock, recovers, &generation, &own);
        scribble(&c, &control, &own, now_ns() + ns);
    }
    end_as(end);
}
