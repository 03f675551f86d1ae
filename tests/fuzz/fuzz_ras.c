/* fuzz_ras.c - any bytes as the answer of NCCL's RAS: read, judged, and printed. */
#include "common/error.h"
#include "fuzz.h"
#include "launcher/diagnosis/ras_report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int rank_of(void *arg, const char *host, pid_t pid)
{
    (void)arg;
    require(strlen(host) < RAS_TEXT_BYTES && pid > 0);
    return pid % 5 == 0 ? -1 : pid % 5;
}

static void check_text(const char *text)
{
    require(strlen(text) < RAS_TEXT_BYTES);
    for (const char *c = text; *c != '\0'; c++)
        require(*c >= ' ' && *c <= '~');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ras_report r;
    struct co_error err;
    int rc = ras_report_parse((const char *)data, size, &r, &err);
    require(rc == 0 || rc == -EPROTO || rc == -E2BIG);
    if (rc < 0)
        return 0;
    ras_report_resolve(&r, rank_of, NULL);
    if (size % 2 == 0)
        ras_report_compare(&r, &r, 1000);
    const struct ras_sums sums = ras_report_count(&r);
    require(sums.n_lagging == 0 || (size % 2 == 0 && ras_report_differs(&r)));
    check_text(r.version);
    for (size_t i = 0; i < r.n; i++) {
        check_text(r.comms[i].hash);
        for (size_t j = 0; j < r.comms[i].n; j++) {
            check_text(r.comms[i].ranks[j].host);
        }
    }
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (out != NULL) {
        ras_report_print(&r, out);
        fclose(out);
        require(len < 100000);
    }
    free(text);
    json_decref(ras_report_json_make(&r));
    ras_report_fini(&r);
    return 0;
}
