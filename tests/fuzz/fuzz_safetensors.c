/* fuzz_safetensors.c - .safetensors files of any bytes. What is accepted can be read to its last
 * byte, and has the same content when it is written again. The target also parses the same bytes as
 * manifests of checkpoints. */
#include "common/error.h"
#include "fuzz.h"
#include "worker-runtime/checkpoint/checkpoint_dir.h"
#include "worker-runtime/files/safetensors_header.h"

#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8 };

/* Of what is accepted: no gaps, names apart, and the same once more. */
static void check_header(const struct safetensors_header *h, uint64_t data_bytes)
{
    struct co_error err = {0};
    struct safetensors_header again;
    uint64_t sum = 0, written;
    char *text;
    size_t size;
    int is_ours = 1;
    for (size_t i = 0; i < h->n; i++) {
        struct ddp_safetensors_tensor *t = &h->tensors[i];
        sum += t->bytes;
        is_ours &= t->dtype >= 0 && t->name[0] != '\0';
    }
    require(sum == data_bytes);
    if (!is_ours || safetensors_header_format(h->tensors, h->n, h->texts, h->n_texts, &text, &size,
                                              &written, &err) != 0)
        return; /* a long key, for example */
    require(written == data_bytes && size % 8 == 0);
    require(safetensors_header_parse(text, size, written, &again, &err) == 0);
    require(again.n == h->n && again.n_texts == h->n_texts);
    for (size_t i = 0; i < h->n; i++)
        require(again.tensors[i].bytes == h->tensors[i].bytes &&
                again.tensors[i].dtype == h->tensors[i].dtype);
    safetensors_header_fini(&again);
    free(text);
}

static void read_file(const uint8_t *data, size_t size)
{
    struct co_error err = {0};
    struct safetensors_header h;
    uint64_t length;
    if (size < LENGTH_BYTES)
        return;
    memcpy(&length, data, sizeof length);
    if (length > size - LENGTH_BYTES)
        return;
    const uint64_t left = size - LENGTH_BYTES - length;
    if (safetensors_header_parse((const char *)data + LENGTH_BYTES, (size_t)length, left, &h,
                                 &err) != 0) {
        require(err.text[0] != '\0'); /* refused with a reason */
        return;
    }
    check_header(&h, left);
    safetensors_header_fini(&h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct checkpoint_manifest m;
    char text[CHECKPOINT_MANIFEST_BYTES];
    read_file(data, size);
    if (checkpoint_manifest_parse((const char *)data, size, &m, NULL) == 0)
        require(checkpoint_manifest_format(&m, text) == size && memcmp(text, data, size) == 0);
    return 0;
}
