/* scaler_print.c - print the scales of a run, for a comparison with torch's GradScaler.
 *
 * Each line of the input is a run: INIT_SCALE GROWTH_FACTOR BACKOFF_FACTOR GROWTH_INTERVAL, and for
 * each step 1 where it overflows, else 0. Each line of the output has the scale and the growth
 * tracker after each step; scales are in hexadecimal, to the bit. */
#include <ddp/ddp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 65536 };

static int print_run(char *line)
{
    struct ddp_scaler_opts opts = {0};
    struct ddp_scaler s;
    char *at = line;
    opts.init_scale = strtof(at, &at);
    opts.growth_factor = strtod(at, &at);
    opts.backoff_factor = strtod(at, &at);
    opts.growth_interval = (int32_t)strtol(at, &at, 10);
    if (ddp_scaler_init(&s, &opts) != 0) {
        fprintf(stderr, "scaler_print: %s\n", ddp_last_error());
        return -1;
    }
    for (char *word = strtok(at, " \n"); word != NULL; word = strtok(NULL, " \n")) {
        ddp_scaler_update(&s, word[0] == '1');
        printf("%a %d ", (double)s.scale, (int)s.growth_tracker);
    }
    putchar('\n');
    return 0;
}

int main(void)
{
    static char line[LINE_BYTES];
    while (fgets(line, sizeof line, stdin) != NULL)
        if (print_run(line) != 0)
            return 1;
    return 0;
}
