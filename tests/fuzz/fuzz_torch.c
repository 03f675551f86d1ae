/* fuzz_torch.c - any bytes as replies of torch's worker server in two ranks, the second after a
 * NUL: read, compared, and printed. */
#include "common/error.h"
#include "fuzz.h"
#include "launcher/torch/torch_reply.h"
#include "launcher/torch/torch_trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct torch_trace traces[2];

static void check_text(const char *text)
{
    require(strlen(text) < TORCH_TEXT_BYTES);
    for (const char *c = text; *c != '\0'; c++)
        require((unsigned char)*c >= ' ' && *c != 0x7f);
}

static void read_reply(const char *bytes, size_t n, struct torch_trace *t)
{
    struct torch_reply reply = {0};
    struct co_error err;
    int rc = torch_reply_parse(bytes, n, false, &reply);
    require(rc == 1 || rc == 0 || rc == -EPROTO || rc == -E2BIG);
    if (rc == 0)
        rc = torch_reply_parse(bytes, n, true, &reply);
    require(rc != 0);
    memset(t, 0, sizeof *t);
    if (rc < 0) {
        torch_trace_add(t, bytes, n, &err); /* as a body alone */
        return;
    }
    require(reply.body >= bytes && reply.body + reply.len <= bytes + n);
    torch_trace_add(t, reply.body, reply.len, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    const char *end = size > 0 ? memchr(bytes, '\0', size) : NULL;
    const size_t first = end != NULL ? (size_t)(end - bytes) : size;
    read_reply(bytes, first, &traces[0]);
    read_reply(bytes + first, size - first, &traces[1]);
    for (int i = 0; i < 2; i++) {
        require(traces[i].n <= TORCH_GROUPS_MAX);
        for (size_t j = 0; j < traces[i].n; j++) {
            check_text(traces[i].calls[j].group);
            check_text(traces[i].calls[j].about);
            check_text(traces[i].calls[j].op);
        }
        json_decref(torch_trace_json_make(&traces[i]));
    }
    const struct torch_rank ranks[] = {{.rank = 0, .trace = &traces[0]},
                                       {.rank = 1, .trace = &traces[1]}};
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    const int missing = torch_trace_find_missing(ranks, 2);
    require(missing >= -1 && missing < 2);
    if (out != NULL) {
        torch_trace_print_missing(ranks, 2, out);
        torch_trace_print(&traces[0], out);
        fclose(out);
        require(len < 65536 && (missing < 0 || len > 0));
    }
    free(text);
    return 0;
}
