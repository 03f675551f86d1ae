#include "pmix_names.h"

#include "common/parse.h"
#include "pmix_plugin.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANK_CHARACTERS = 11 }; /* of a rank, and what separates it from the next one */

/* libpmix separates names by commas, and finds numbers in them. */
static bool may_be_in_name(char c)
{
    return isalnum((unsigned char)c) || c == '.' || c == '-';
}

void pmix_names_node(const char *host, const char *mark, char ret[PMIX_NAMES_NODE_BYTES])
{
    enum { HOST_BYTES = 64 };
    char clean[HOST_BYTES];
    size_t n = 0;
    for (; *host != '\0' && n < sizeof clean - 1; host++)
        if (may_be_in_name(*host))
            clean[n++] = *host;
    clean[n] = '\0';
    snprintf(ret, PMIX_NAMES_NODE_BYTES, "%s%s%.24s", n > 0 ? clean : "node",
             *mark != '\0' ? "-" : "", mark);
}

void pmix_names_space(const char *secret, uint32_t generation, char ret[PMIX_NAMES_SPACE_BYTES])
{
    snprintf(ret, PMIX_NAMES_SPACE_BYTES, "ddp-%.40s-%u", secret, generation);
}

int pmix_names_node_list(const struct pmix_plugin_node *nodes, uint32_t n_nodes, char **ret)
{
    size_t bytes = 1;
    for (uint32_t i = 0; i < n_nodes; i++)
        bytes += strlen(nodes[i].name) + 1;
    char *text = malloc(bytes);
    if (text == NULL)
        return -ENOMEM;
    char *end = text;
    for (uint32_t i = 0; i < n_nodes; i++)
        end = stpcpy(stpcpy(end, i > 0 ? "," : ""), nodes[i].name);
    *end = '\0';
    *ret = text;
    return 0;
}

static char *print_ranks(char *end, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        end += sprintf(end, "%s%u", i > 0 ? "," : "", first + i);
    *end = '\0';
    return end;
}

int pmix_names_rank_list(const struct pmix_plugin_node *nodes, uint32_t n_nodes, char **ret)
{
    uint32_t first = 0;
    size_t bytes = 1 + n_nodes;
    for (uint32_t i = 0; i < n_nodes; i++)
        bytes += (size_t)nodes[i].n_ranks * RANK_CHARACTERS;
    char *text = malloc(bytes);
    if (text == NULL)
        return -ENOMEM;
    char *end = text;
    for (uint32_t i = 0; i < n_nodes; first += nodes[i++].n_ranks)
        end = print_ranks(stpcpy(end, i > 0 ? ";" : ""), first, nodes[i].n_ranks);
    *ret = text;
    return 0;
}

int pmix_names_ranks(uint32_t first, uint32_t n, char **ret)
{
    char *text = malloc((size_t)n * RANK_CHARACTERS + 1);
    if (text == NULL)
        return -ENOMEM;
    print_ranks(text, first, n);
    *ret = text;
    return 0;
}

int pmix_names_read_version(const char *text, struct pmix_names_version *ret)
{
    struct pmix_names_version v;
    const size_t before = strcspn(text, "0123456789");
    if (sscanf(text + before, "%3d.%3d.%3d", &v.major, &v.minor, &v.release) != 3)
        return -EINVAL;
    *ret = v;
    return 0;
}

bool pmix_names_uses_select(const struct pmix_names_version *v)
{
    if (v->major != 4)
        return v->major < 4 || (v->major == 5 && v->minor == 0 && v->release < 8);
    return v->minor < 2 || (v->minor == 2 && v->release < 6);
}
