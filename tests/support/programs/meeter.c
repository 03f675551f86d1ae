/* meeter - ranks that rendezvous with libddp, sum up their numbers, pass a word to each other
 * through the job's store, and exit. Each writes "joined RANK of SIZE, sum SUM, received WORD" to
 * TEST_FIFO, or to stdout. */
#include <ddp/ddp.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void tell(const char *line, int n)
{
    const char *path = getenv("TEST_FIFO");
    int fd = path != NULL ? open(path, O_WRONLY) : STDOUT_FILENO;
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        exit(92);
}

static int leave_word(struct ddp_group *g, char *word, size_t n)
{
    const int rank = ddp_rank(g), size = ddp_world_size(g);
    char key[32], value[32];
    size_t len;
    snprintf(key, sizeof key, "word of %d", rank);
    const int n_value = snprintf(value, sizeof value, "hello-from-%d", rank);
    int rc = ddp_store_set(g, key, value, (size_t)n_value);
    snprintf(key, sizeof key, "word of %d", (rank + 1) % size);
    if (rc == 0)
        rc = ddp_store_get(g, key, word, n - 1, &len, 60000);
    if (rc != 0)
        return rc;
    word[len] = '\0';
    return ddp_barrier(g); /* the store goes with rank 0 */
}

int main(void)
{
    struct ddp_group *g;
    char word[64], line[160];
    if (ddp_init(NULL, &g) != 0)
        ddp_fatal("meeter");
    int sum = ddp_rank(g);
    if (ddp_all_reduce(g, &sum, &sum, 1, DDP_INT32, DDP_SUM, NULL) != 0 ||
        leave_word(g, word, sizeof word) != 0)
        ddp_fatal("meeter");
    tell(line, snprintf(line, sizeof line, "joined %d of %d, sum %d, received %s\n", ddp_rank(g),
                        ddp_world_size(g), sum, word));
    ddp_finalize(g);
    return 0;
}
