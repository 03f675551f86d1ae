/* rememberer - ranks that keep their state in memory: SAVES steps of BYTES bytes in each
 * generation, which differ between ranks and steps. Each compares what it loads with what it must
 * be.
 *
 *     rememberer SAVES BYTES
 *
 * They report to the FIFO that TEST_FIFO names:
 *
 *     found RANK GENERATION STEP FROM TO    STEP -1: nothing; FROM, TO: the ranks of the copies
 *     saved RANK GENERATION STEP PID        with all copies; then the rank waits to be ended
 *     failed RANK GENERATION TEXT           after which it waits too */
#include <ddp/ddp.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((format(printf, 2, 3))) static void tell(FILE *fifo, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(fifo, format, args);
    va_end(args);
    fputc('\n', fifo);
    fflush(fifo); /* one write: lines of several ranks stay whole */
}

static void fill(uint32_t *words, size_t n, int rank, int64_t step)
{
    for (size_t i = 0; i < n; i++)
        words[i] = (uint32_t)(i * 2654435761u) ^ (uint32_t)(rank * 7919 + step);
}

static int load(struct ddp_memory *m, const struct ddp_memory_item *item, int rank, int64_t step)
{
    const size_t n = item->bytes / sizeof(uint32_t);
    uint32_t *expected = malloc(item->bytes);
    int rc = ddp_memory_load(m, item, 1);
    fill(expected, n, rank, step);
    if (rc == 0 && memcmp(expected, item->data, item->bytes) != 0)
        rc = ddp_fail("other bytes were loaded");
    free(expected);
    return rc;
}

static int run(struct ddp_group *g, FILE *fifo, int n_saves, const struct ddp_memory_item *item)
{
    const int rank = ddp_rank(g);
    const unsigned long long generation = ddp_generation(g);
    struct ddp_memory *m;
    struct ddp_memory_state found;
    int rc = ddp_memory_open(g, &m);
    if (rc == 0)
        rc = ddp_memory_found(m, &found);
    if (rc == 0 && found.step >= 0)
        rc = load(m, item, rank, found.step);
    if (rc != 0)
        return rc;
    tell(fifo, "found %d %llu %lld %d %d", rank, generation, (long long)found.step, found.came_from,
         found.copied_to);
    const int64_t last = found.step < 0 ? n_saves : found.step + n_saves;
    for (int64_t step = found.step < 0 ? 1 : found.step + 1; rc == 0 && step <= last; step++) {
        fill(item->data, item->bytes / sizeof(uint32_t), rank, step);
        rc = ddp_memory_save(m, step, item, 1);
    }
    if (rc == 0)
        rc = ddp_memory_wait(m);
    if (rc == 0)
        tell(fifo, "saved %d %llu %lld %d", rank, generation, (long long)last, getpid());
    return rc;
}

int main(int argc, char **argv)
{
    struct ddp_group *g;
    FILE *fifo = fopen(getenv("TEST_FIFO"), "we");
    if (argc != 3 || fifo == NULL || ddp_init(NULL, &g) != 0)
        return 90;
    const size_t bytes = (size_t)strtoull(argv[2], NULL, 10);
    const struct ddp_memory_item item = {malloc(bytes), bytes};
    if (run(g, fifo, atoi(argv[1]), &item) != 0)
        tell(fifo, "failed %d %llu %s", ddp_rank(g), (unsigned long long)ddp_generation(g),
             ddp_last_error());
    for (;;) /* until it is ended */
        pause();
}
