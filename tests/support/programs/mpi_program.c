/* mpi_program.c - an MPI rank that executes its arguments as commands, one after the other:
 *
 *     hello           report "hello RANK of SIZE, NODE_RANK of NODE_SIZE, program APPNUM"
 *     ring            pass a number around all ranks; report "ring SUM" on rank 0
 *     sum             all-reduce 1000 numbers; report "sum TOTAL" on rank 0
 *     only RANK       leave the next word to that rank; for others it is "nothing"
 *     nothing
 *     abort CODE      MPI_Abort
 *     crash           SIGABRT
 *     wait            in a barrier, forever if another rank does not call it
 *     hang            in pause()
 *     await           until SIGUSR1 has come, since the start
 *     leave           exit with 0, without MPI_Finalize
 *     spawn           MPI_Comm_spawn, which fails; report "spawn refused"
 *     publish         MPI_Publish_name, which fails; report "publish refused"
 *
 * "early" as the first word: exit with 0 before MPI_Init on rank 1 (by RANK), the others continue.
 * Reports are written to TEST_FIFO, in one write. */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_NUMBERS = 1000 };

static int rank, size;

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
    const char *path = getenv("TEST_FIFO");
    char line[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    line[n++] = '\n';
    int fd = path != NULL ? open(path, O_WRONLY) : STDOUT_FILENO;
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        exit(99);
    if (path != NULL)
        close(fd);
}

static void hello(void)
{
    MPI_Comm node;
    int node_rank, node_size, has_number, *number;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &node_rank);
    MPI_Comm_size(node, &node_size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &has_number);
    tell("hello %d of %d, %d of %d, program %d", rank, size, node_rank, node_size,
         has_number ? *number : -1);
    MPI_Comm_free(&node);
}

static void ring(void)
{
    int sum = 0;
    if (size > 1 && rank > 0)
        MPI_Recv(&sum, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    sum += rank;
    if (size > 1)
        MPI_Send(&sum, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
    if (size > 1 && rank == 0)
        MPI_Recv(&sum, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 0)
        tell("ring %d", sum);
}

static void sum(void)
{
    double in[N_NUMBERS], out[N_NUMBERS], total = 0;
    for (int i = 0; i < N_NUMBERS; i++)
        in[i] = rank + i;
    MPI_Allreduce(in, out, N_NUMBERS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N_NUMBERS; i++)
        total += out[i];
    if (rank == 0)
        tell("sum %.0f", total);
}

static void spawn(void)
{
    MPI_Comm others;
    int code;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int rc =
        MPI_Comm_spawn("true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &others, &code);
    tell("spawn %s", rc == MPI_SUCCESS ? "done" : "refused");
}

static void publish(void)
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int rc = MPI_Publish_name("name", MPI_INFO_NULL, "port");
    tell("publish %s", rc == MPI_SUCCESS ? "done" : "refused");
}

/* It is blocked. */
static sigset_t awaited(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    return set;
}

static void await(void)
{
    const sigset_t set = awaited();
    int sig;
    sigwait(&set, &sig);
}

/* returns   how many words it took */
static int do_word(char **word)
{
    if (strcmp(word[0], "hello") == 0)
        hello();
    else if (strcmp(word[0], "ring") == 0)
        ring();
    else if (strcmp(word[0], "sum") == 0)
        sum();
    else if (strcmp(word[0], "wait") == 0)
        MPI_Barrier(MPI_COMM_WORLD);
    else if (strcmp(word[0], "hang") == 0)
        pause();
    else if (strcmp(word[0], "await") == 0)
        await();
    else if (strcmp(word[0], "crash") == 0)
        abort();
    else if (strcmp(word[0], "leave") == 0)
        _exit(0);
    else if (strcmp(word[0], "spawn") == 0)
        spawn();
    else if (strcmp(word[0], "publish") == 0)
        publish();
    else if (strcmp(word[0], "abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, atoi(word[1]));
    else if (strcmp(word[0], "nothing") != 0)
        exit(98);
    return strcmp(word[0], "abort") == 0 ? 2 : 1;
}

int main(int argc, char **argv)
{
    char **word = argv + 1;
    bool early = argc > 1 && strcmp(word[0], "early") == 0;
    if (early && strcmp(getenv("RANK"), "1") == 0)
        return 0;
    word += early;
    const sigset_t set = awaited();
    sigprocmask(SIG_BLOCK, &set, NULL);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    while (*word != NULL) {
        bool is_other = strcmp(*word, "only") == 0 && atoi(word[1]) != rank;
        word += strcmp(*word, "only") == 0 ? 2 : 0;
        if (is_other)
            word += strcmp(*word, "abort") == 0 ? 2 : 1;
        else
            word += do_word(word);
    }
    MPI_Finalize();
    return 0;
}
