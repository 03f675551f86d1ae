/* stepper - ranks that make steps of training by libddp, then fail, up to some generation:
 *
 *     stepper STEPS GENERATION
 *
 * In generations before that one rank 0 kills itself when STEPS steps are complete, and the others
 * have begun one more. In that one all exit with 0 after STEPS steps. */
#include <ddp/ddp.h>

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct ddp_group *g;
    struct ddp_model *m;
    float weight = 0;
    struct ddp_tensor tensor = {
        .name = "weight", .param = &weight, .count = 1, .dtype = DDP_FLOAT32};
    if (argc != 3 || ddp_init(NULL, &g) != 0 || ddp_model_create(g, &tensor, 1, NULL, &m) != 0)
        return 90;
    bool fails = ddp_generation(g) < strtoull(argv[2], NULL, 10);
    for (long left = strtol(argv[1], NULL, 10); left > 0; left--)
        if (ddp_model_sync(m) != 0)
            return 91;
    if (fails && ddp_rank(g) == 0)
        raise(SIGKILL);
    if (fails && ddp_model_sync(m) == 0)
        return 92; /* it cannot be complete without rank 0 */
    ddp_finalize(g);
    return fails ? 5 : 0;
}
