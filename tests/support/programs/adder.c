/* adder - ranks that call all-reduce of libddp without end, until one kills itself while it holds
 * much memory: the others detect the loss before the process has ended. They ignore SIGTERM, so
 * that each reports what it has detected.
 *
 *     adder RANK SIGNAL */
#include <ddp/ddp.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STEPS_BEFORE = 100, MEMORY_BYTES = 64 << 20 };

int main(int argc, char **argv)
{
    static struct ddp_group *g; /* LeakSanitizer still finds it after main has returned */
    if (argc != 3 || ddp_init(NULL, &g) != 0)
        return 90;
    signal(SIGTERM, SIG_IGN);
    float x = 0;
    for (int step = 0;; step++) {
        if (step == STEPS_BEFORE && ddp_rank(g) == atoi(argv[1])) {
            void *memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
            if (memory == MAP_FAILED)
                return 91;
            signal(SIGTERM, SIG_DFL);
            raise(atoi(argv[2]));
        }
        if (ddp_all_reduce(g, &x, &x, 1, DDP_FLOAT32, DDP_SUM, NULL) != 0) {
            fprintf(stderr, "%s\n", ddp_last_error());
            return 5; /* at once: before the kernel is done with the other one */
        }
    }
}
