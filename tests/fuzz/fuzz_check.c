/* fuzz_check.c - any bytes as a node's report to ddpctl check, and as the output of nvidia-smi on
 * that node: what is accepted is within the bounds, and what ddpctl shows of it moves no cursor. */
#include "common/error.h"
#include "ctl/check/check_gpus.h"
#include "ctl/check/check_report.h"
#include "ctl/check/check_wire.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

static void require_plain(const char *text)
{
    for (; *text != '\0'; text++)
        require((unsigned char)*text >= ' ' || *text == '\n');
}

static void show(const struct check_facts *facts)
{
    struct check_report r;
    char *text = NULL;
    size_t n = 0;
    require(check_report_init(&r, 2) == 0);
    for (size_t i = 0; i < r.n_nodes; i++)
        r.nodes[i] = (struct check_node){
            .name = "n", .is_up = true, .has_facts = true, .facts = *facts, .address = "::1"};
    require(check_rules(&r, "1.0") == 0);
    FILE *out = open_memstream(&text, &n);
    require(out != NULL && check_text_print(&r, out) == 0 && fclose(out) == 0);
    require_plain(text);
    free(text);
    json_t *json = check_report_to_json(&r);
    require(json != NULL);
    json_decref(json);
    check_report_fini(&r);
}

/* Formats what was parsed, and parses that: the result is the same. */
static void try_facts(const json_t *json)
{
    static struct check_facts facts, again;
    struct co_error err = {0};
    if (check_facts_from_json(json, &facts, &err) < 0) {
        require(err.text[0] != '\0');
        return;
    }
    require(facts.n_addresses <= CHECK_ADDRESSES_MAX && facts.n_described <= CHECK_GPUS_MAX);
    json_t *told = check_facts_to_json(&facts);
    require(told != NULL && check_facts_from_json(told, &again, &err) == 0);
    require(again.n_addresses == facts.n_addresses && again.nofile == facts.nofile);
    json_decref(told);
    show(&facts);
}

static void try_gpus(const uint8_t *data, size_t size)
{
    static struct check_facts facts;
    char version[CHECK_SHORT_BYTES], *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    memset(&facts, 0, sizeof facts);
    require(check_gpus_read(text, &facts) >= facts.n_described);
    require_plain(facts.driver);
    for (size_t i = 0; i < facts.n_described; i++)
        require_plain(facts.gpus[i].name);
    check_gpus_read_version(text, version, sizeof version);
    require_plain(version);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct check_wire wire = {.n_ignored = 0};
    struct co_error err = {0};
    json_t *json;
    require(co_buf_append(&wire.in, data, size) == 0);
    while (check_wire_take(&wire, &json, &err) > 0) {
        try_facts(json);
        json_decref(json);
    }
    check_wire_fini(&wire);
    try_gpus(data, size);
    return 0;
}
