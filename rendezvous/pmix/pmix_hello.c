#include "pmix_hello.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_WORDS = 7 };
enum { WORD_MAGIC, WORD_VERSION, WORD_NAME, WORD_LIBRARY, WORD_SECRET, WORD_MACHINE, WORD_RANKS };

static const char magic[] = "ddp-pmix", version[] = "1";

int pmix_hello_print(const struct pmix_hello *h, char text[PMIX_HELLO_BYTES])
{
    int n = snprintf(text, PMIX_HELLO_BYTES, "%s %s %s %s %s %016" PRIx64 " ", magic, version,
                     h->name, h->library, h->secret, h->machine);
    for (uint32_t i = 0; i < h->n_programs && n < PMIX_HELLO_BYTES; i++)
        n += snprintf(text + n, (size_t)(PMIX_HELLO_BYTES - n), "%s%u", i > 0 ? ":" : "",
                      h->ranks[i]);
    return n < PMIX_HELLO_BYTES ? n : -ENOSPC;
}

/* Exactly N_WORDS, with a blank between two of them. The text is cut up. */
static bool split(char *text, char *words[N_WORDS])
{
    int n = 0;
    for (char *at = text; at != NULL; n++) {
        if (n == N_WORDS)
            return false;
        words[n] = strsep(&at, " ");
    }
    return n == N_WORDS;
}

static bool consists_of(const char *text, const char *allowed, size_t max)
{
    const size_t n = strlen(text);
    return n > 0 && n < max && strspn(text, allowed) == n;
}

#define DIGITS   "0123456789"
#define LETTERS  "abcdefghijklmnopqrstuvwxyz"
#define CAPITALS "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

static bool read_ranks(char *text, struct pmix_hello *h)
{
    int64_t n;
    for (char *at = text; at != NULL;) {
        const char *word = strsep(&at, ":");
        if (h->n_programs == PMIX_HELLO_PROGRAMS ||
            co_parse_int("ranks", word, 1, PMIX_HELLO_MAX_RANKS, &n, NULL) < 0)
            return false;
        h->ranks[h->n_programs++] = (uint32_t)n;
        h->n_ranks += (uint32_t)n;
    }
    return h->n_ranks <= PMIX_HELLO_MAX_RANKS;
}

static bool read_words(char *const words[N_WORDS], struct pmix_hello *h)
{
    if (strcmp(words[WORD_MAGIC], magic) != 0 || strcmp(words[WORD_VERSION], version) != 0 ||
        !consists_of(words[WORD_NAME], DIGITS LETTERS CAPITALS ".-", sizeof h->name) ||
        !consists_of(words[WORD_LIBRARY], DIGITS ".", sizeof h->library) ||
        !consists_of(words[WORD_SECRET], DIGITS "abcdef", sizeof h->secret) ||
        !consists_of(words[WORD_MACHINE], DIGITS "abcdef", 17))
        return false;
    strcpy(h->name, words[WORD_NAME]);
    strcpy(h->library, words[WORD_LIBRARY]);
    strcpy(h->secret, words[WORD_SECRET]);
    h->machine = strtoull(words[WORD_MACHINE], NULL, 16);
    return read_ranks(words[WORD_RANKS], h);
}

int pmix_hello_read(const uint8_t *bytes, size_t len, struct pmix_hello *ret, struct co_error *err)
{
    char text[PMIX_HELLO_BYTES];
    char *words[N_WORDS];
    struct pmix_hello h = {0};
    bool is_right = len < sizeof text && memchr(bytes, '\0', len) == NULL;
    if (is_right) {
        memcpy(text, bytes, len);
        text[len] = '\0';
        is_right = split(text, words) && read_words(words, &h);
    }
    if (!is_right)
        return co_fail(err, -EPROTO,
                       "a node sent an invalid PMIx announcement: use the same version of ddprun "
                       "and the same --mpi on all nodes");
    *ret = h;
    return 0;
}

int pmix_part_print_gone(uint32_t rank, char text[PMIX_PART_GONE_BYTES])
{
    return snprintf(text, PMIX_PART_GONE_BYTES, "%c%u", PMIX_PART_GONE, rank);
}

int pmix_part_read(const uint8_t *bytes, size_t len, struct pmix_part *ret)
{
    char text[PMIX_PART_GONE_BYTES];
    int64_t rank;
    if (len > 0 && bytes[0] == PMIX_PART_FENCE) {
        *ret = (struct pmix_part){.bytes = bytes + 1, .len = len - 1};
        return 0;
    }
    if (len == 0 || bytes[0] != PMIX_PART_GONE || len > sizeof text ||
        memchr(bytes, '\0', len) != NULL)
        return -EPROTO;
    memcpy(text, bytes + 1, len - 1);
    text[len - 1] = '\0';
    if (co_parse_int("rank", text, 0, INT32_MAX, &rank, NULL) < 0)
        return -EPROTO;
    *ret = (struct pmix_part){.is_gone = true, .rank = (uint32_t)rank};
    return 0;
}
