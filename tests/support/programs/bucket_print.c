/* bucket_print.c - print the buckets of networks, for a comparison with torch's.
 *
 * The input is numbers: N FIRST_BYTES BYTES, then for each of N tensors its bytes and the number of
 * its enum ddp_dtype, then the order in which they were ready. A line of the output is a bucket:
 * the numbers of its tensors, lowest first. */
#include "common/error.h"
#include "worker-runtime/model/bucket_plan.h"

#include <stdio.h>

enum { MOST = 100000 };

static struct bucket_tensor tensor[MOST];
static size_t order[MOST];

static int read_network(size_t *ret_n, struct bucket_limits *limits)
{
    if (scanf("%zu%zu%zu", ret_n, &limits->first_bytes, &limits->bytes) != 3 || *ret_n > MOST)
        return -1;
    for (size_t i = 0; i < *ret_n; i++) {
        int dtype;
        if (scanf("%zu%d", &tensor[i].bytes, &dtype) != 2)
            return -1;
        tensor[i].dtype = (enum ddp_dtype)dtype;
    }
    for (size_t k = 0; k < *ret_n; k++)
        if (scanf("%zu", &order[k]) != 1)
            return -1;
    return 0;
}

int main(void)
{
    size_t n;
    struct bucket_limits limits = {0};
    struct bucket_plan plan;
    struct co_error err = {0};
    if (read_network(&n, &limits) != 0) {
        fprintf(stderr, "bucket_print: the input is no network\n");
        return 2;
    }
    if (bucket_plan_init(tensor, n, order, &limits, &plan, &err) != 0) {
        fprintf(stderr, "bucket_print: %s\n", err.text);
        return 1;
    }
    for (size_t k = 0; k < plan.n_buckets; k++) {
        for (size_t i = 0; i < n; i++)
            if (plan.place[i].bucket == k)
                printf("%zu ", i);
        putchar('\n');
    }
    bucket_plan_fini(&plan);
    return 0;
}
