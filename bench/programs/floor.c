/* floor.c - the least that a launcher's start can cost: a program that only calls posix_spawn for N
 * copies of another program and waits for them.
 *
 *     floor N PROGRAM [ARGUMENT]...
 *
 * Exit status: 0 if that of each copy was 0. */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv)
{
    int n = argc > 2 ? atoi(argv[1]) : 0;
    int failed = 0, status;

    if (n < 1) {
        fputs("usage: floor N PROGRAM [ARGUMENT]...\n", stderr);
        return 2;
    }
    for (int i = 0; i < n; i++) {
        int rc = posix_spawnp(&(pid_t){0}, argv[2], NULL, NULL, argv + 2, environ);
        if (rc != 0) {
            fprintf(stderr, "floor: cannot start '%s': %s\n", argv[2], strerror(rc));
            return 127;
        }
    }
    while (waitpid(-1, &status, 0) > 0 || errno == EINTR)
        failed |= status;
    return failed != 0;
}
