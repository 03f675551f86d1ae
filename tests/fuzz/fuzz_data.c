/* fuzz_data.c - files of samples, of any first bytes and any length. What is accepted lies within
 * the file.
 *
 * The first 16 bytes of the input are the length of the file and the options of a file of tokens;
 * the rest is its head. */
#include "common/error.h"
#include "fuzz.h"
#include "worker-runtime/data/data_format.h"

#include <string.h>

static void check(const struct data_format *f, uint64_t file_bytes)
{
    require(f->count >= 0 && f->elements > 0);
    require(f->elements * f->stored_bytes <= DATA_FORMAT_MAX_SAMPLE + 8);
    if (f->count > 0) {
        const uint64_t last = f->at + (uint64_t)(f->count - 1) * f->stride_bytes;
        require(last + f->elements * f->stored_bytes <= file_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct co_error err = {0};
    struct data_format f;
    struct ddp_tokens_opts opts;
    uint64_t file_bytes;
    uint16_t small[4];
    if (size < 16)
        return 0;
    memcpy(&file_bytes, data, 8);
    memcpy(small, data + 8, 8);
    opts = (struct ddp_tokens_opts){
        .block = (int64_t)small[0] - 1, .stride = (int64_t)small[1] - 1, .vocab = small[2]};
    data += 16;
    size -= 16;
    if (file_bytes < size)
        file_bytes = size;
    const size_t n = size < DATA_FORMAT_HEAD ? size : DATA_FORMAT_HEAD;
    if (data_format_idx(data, n, file_bytes, &f, &err) == 0)
        check(&f, file_bytes);
    else
        require(err.text[0] != '\0');
    if (data_format_tokens(data, n, file_bytes, &opts, &f, &err) == 0)
        check(&f, file_bytes);
    return 0;
}
