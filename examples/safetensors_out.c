#include "safetensors_out.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atomic_file.h"
#include "failure.h"

static size_t bytes_of(const struct safetensors_tensor *t)
{
    size_t n = t->element_bytes;

    for (size_t i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

static void print_header(FILE *out, const struct safetensors_tensor *tensors, size_t n)
{
    size_t at = 0;

    fputs("{\"__metadata__\":{\"format\":\"pt\"}", out);
    for (size_t i = 0; i < n; i++) {
        const struct safetensors_tensor *t = &tensors[i];
        fprintf(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, t->dtype);
        for (size_t k = 0; k < t->n_dims; k++)
            fprintf(out, "%s%zu", k > 0 ? "," : "", t->shape[k]);
        fprintf(out, "],\"data_offsets\":[%zu,%zu]}", at, at + bytes_of(t));
        at += bytes_of(t);
    }
    fputc('}', out);
    while (ftell(out) % 8 != 0) /* the data begin aligned, for readers that map the file */
        fputc(' ', out);
}

static int write_all(struct atomic_file *f, const char *header, size_t header_bytes,
                     const struct safetensors_tensor *tensors, size_t n, struct failure *why)
{
    uint64_t length = header_bytes;

    if (atomic_file_write(f, &length, sizeof(length), why) < 0 ||
        atomic_file_write(f, header, header_bytes, why) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (atomic_file_write(f, tensors[i].data, bytes_of(&tensors[i]), why) < 0)
            return -1;
    return 0;
}

int safetensors_write(const char *path, const struct safetensors_tensor *tensors, size_t n,
                      struct failure *why)
{
    char *header = NULL;
    size_t header_bytes = 0;
    struct atomic_file f;
    int rc;

    FILE *out = open_memstream(&header, &header_bytes);
    if (out == NULL)
        return failure_set(why, "no memory to write '%s'", path);
    print_header(out, tensors, n);
    if (fclose(out) != 0) {
        free(header);
        return failure_set(why, "no memory to write '%s'", path);
    }
    rc = atomic_file_open(&f, path, why);
    if (rc == 0)
        rc = write_all(&f, header, header_bytes, tensors, n, why);
    if (rc == 0)
        rc = atomic_file_commit(&f, why);
    atomic_file_discard(&f);
    free(header);
    return rc;
}
