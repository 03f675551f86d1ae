/* safetensors_copy.c - read a .safetensors file and write all of it to another one, by libddp.
 *
 *     safetensors_copy FROM TO
 *
 * For tests/interop/safetensors_both_ways.py. Of the metadata only "format" is copied. */
#include <ddp/ddp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct ddp_safetensors *f;
    if (argc != 3) {
        fprintf(stderr, "usage: safetensors_copy FROM TO\n");
        return 2;
    }
    if (ddp_safetensors_open(argv[1], &f) != 0)
        ddp_fatal("open");
    const size_t n = ddp_safetensors_count(f);
    const char *format = ddp_safetensors_text(f, "format");
    const struct ddp_safetensors_text text = {"format", format};
    struct ddp_safetensors_tensor *tensors = calloc(n + 1, sizeof *tensors);
    if (tensors == NULL)
        return 1;
    for (size_t i = 0; i < n; i++)
        tensors[i] = *ddp_safetensors_get(f, i);
    if (ddp_safetensors_write(argv[2], tensors, n, &text, format != NULL) != 0)
        ddp_fatal("write");
    ddp_safetensors_close(f);
    free(tensors);
    return 0;
}
