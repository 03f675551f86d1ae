/* Any bytes as the kernel log, and as the small files of a control group. */
#include "fuzz.h"
#include "launcher/diagnosis/oom.h"
#include "launcher/diagnosis/oom_report.h"

#include <stdlib.h>
#include <string.h>

/* What the log yields is within its bounds, and can be formatted. */
static void look_for(const struct oom_log *log, const struct oom_victim *v)
{
    char text[OOM_GROUP_BYTES + 200];
    if (v == NULL)
        return;
    if (v->pid < 0 || strlen(v->name) >= OOM_NAME_BYTES ||
        strlen(v->limit_group) >= OOM_GROUP_BYTES || strlen(v->process_group) >= OOM_GROUP_BYTES)
        abort();
    struct oom_groups none = {0};
    struct oom_case c = {.after = &none, .log = log, .pid = v->pid, .killed = true};
    struct oom_finding f;
    oom_find(&c, &f);
    if (f.blame != OOM_BLAME_RANK)
        abort();
    oom_text_brief(&f, text, sizeof text);
}

static void parse_files(const uint8_t *data, size_t n)
{
    char *text = calloc(1, n + 1);
    if (text == NULL)
        return;
    memcpy(text, data, n);
    oom_parse_field(text, "oom_kill");
    oom_parse_field(text, "MemTotal");
    uint64_t bytes = oom_parse_bytes(text);
    if (bytes != OOM_UNKNOWN && bytes >= UINT64_C(1) << 62)
        abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct oom_log log;
    log = (struct oom_log){0};
    oom_log_add(&log, (const char *)data, n);
    if (log.n_victims > 0)
        look_for(&log, &log.victims[(log.n_victims - 1) % OOM_LOG_VICTIMS]);
    look_for(&log, oom_log_find_in(&log, "/"));
    parse_files(data, n);
    return 0;
}
