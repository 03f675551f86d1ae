/* fuzz_hosts.c - any bytes as a host file, and as a list of hosts. What is accepted is within the
 * bounds, and nothing in it can be taken for an option of ssh or mean anything to a shell. */
#include "common/error.h"
#include "fuzz.h"
#include "launcher/hosts/host_list.h"

#include <stdlib.h>
#include <string.h>

static void check_word(const char *word, size_t max)
{
    require(strlen(word) < max && word[0] != '-');
    require(strpbrk(word, " \t\n\"'`$\\;&|<>(){}[]*?!#~=/,") == NULL);
}

static void check(int rc, const struct co_error *err, const struct host_list *l)
{
    static uint32_t shares[HOST_LIST_MAX];
    require(l->n <= HOST_LIST_MAX);
    if (rc < 0) {
        require(err->code == rc && err->text[0] != '\0');
        return;
    }
    require(l->n > 0);
    for (size_t i = 0; i < l->n; i++) {
        const struct host *h = &l->hosts[i];
        check_word(h->name, sizeof h->name);
        check_word(h->user, sizeof h->user);
        require(h->name[0] != '\0' && h->slots <= HOST_SLOTS_MAX);
        require(h->max_slots == 0 || h->slots <= h->max_slots);
    }
    if (host_list_share(l, 7, 0, shares, NULL) == 0) {
        uint64_t sum = 0;
        for (size_t i = 0; i < l->n; i++)
            sum += shares[i];
        require(sum == 7);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct host_list file = {0}, line = {0};
    struct co_error err = {0};
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    check(host_list_add_file(&file, "f", text, size, &err), &err, &file);
    check(host_list_add(&line, "-H", text, &err), &err, &line);
    host_list_fini(&file);
    host_list_fini(&line);
    free(text);
    return 0;
}
