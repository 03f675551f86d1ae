/* Lists of hosts, from the inside out: host_list_add_file() cuts a file into lines and add_line()
 * a line into an entry and its settings; add_entries() cuts a list at its commas; add_entry()
 * takes user and slots off an entry; expand_entry() writes out its ranges and calls add_host() for
 * each name, which adds a host or merges a repeat. Read add_entry() first, then expand_entry().
 *
 * Invariant: nothing of an entry that could be an option of ssh or mean something to a shell
 * passes check_word(). */
#include "host_list.h"

#include "launcher/platform/host_env.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ENTRY_BYTES = 4096, /* one entry as written, including ranges */
    RANGE_DIGITS = 9,
    SHOWN = 100, /* of a text in a message */
};

static const char blanks[] = " \t\r\v\f";

/* --- one host --- */

static int merge(struct host *old, const struct host *new, struct co_error *err)
{
    bool slots_are_said = new->slots != 0 || (old->slots != 0 && old->n_mentions == 1);
    if (slots_are_said || strcmp(old->user, new->user) != 0 || old->port != new->port ||
        old->max_slots != new->max_slots)
        return co_fail(err, -EINVAL,
                       "host '%s' is listed twice with settings; only repeats without settings add "
                       "up to slots",
                       new->name);
    if (old->n_mentions == HOST_SLOTS_MAX)
        return co_fail(err, -ERANGE, "host '%s' is listed more than %d times", new->name,
                       HOST_SLOTS_MAX);
    if (old->max_slots != 0 && old->n_mentions == old->max_slots)
        return co_fail(err, -EINVAL, "host '%s' is listed more often than its max-slots=%u allows",
                       new->name, old->max_slots);
    old->slots = ++old->n_mentions;
    return 0;
}

static int add_host(struct host_list *l, const struct host *new, struct co_error *err)
{
    for (size_t i = l->n; i-- > 0;) /* repeats come one after the other, as a rule */
        if (strcmp(l->hosts[i].name, new->name) == 0)
            return merge(&l->hosts[i], new, err);
    if (l->n == HOST_LIST_MAX)
        return co_fail(err, -ERANGE, "too many hosts: at most %d are allowed", HOST_LIST_MAX);
    if ((l->n & (l->n - 1)) == 0) { /* the capacity is the next power of two */
        struct host *more = realloc(l->hosts, (l->n == 0 ? 1 : 2 * l->n) * sizeof *more);
        if (more == NULL)
            return co_fail(err, -ENOMEM, "out of memory");
        l->hosts = more;
    }
    l->hosts[l->n] = *new;
    l->hosts[l->n++].n_mentions = 1;
    return 0;
}

/* What goes to ssh must not be taken for one of its options, nor mean anything to a shell. */
static int check_word(const char *what, const char *word, const char *also, struct co_error *err)
{
    if (*word == '\0')
        return co_fail(err, -EINVAL, "missing %s", what);
    if (*word == '-')
        return co_fail(err, -EINVAL, "'%.*s' is not a valid %s: it begins with '-'", SHOWN, word,
                       what);
    for (const char *c = word; *c != '\0'; c++)
        if (!isascii((unsigned char)*c) ||
            (!isalnum((unsigned char)*c) && strchr(also, *c) == NULL))
            return co_fail(err, -EINVAL, "'%.*s' is not a valid %s", SHOWN, word, what);
    return 0;
}

/* --- ranges --- */

struct entry {
    struct host_list *to;
    struct host host; /* its name is what has been expanded so far */
};

static int expand_entry(struct entry *e, const char *rest, struct co_error *err);

static int append(struct entry *e, const char *text, size_t n, const char *rest,
                  struct co_error *err)
{
    size_t len = strlen(e->host.name);
    if (len + n >= sizeof e->host.name)
        return co_fail(err, -EINVAL, "host name too long: expected at most %zu bytes",
                       sizeof e->host.name - 1);
    memcpy(e->host.name + len, text, n);
    e->host.name[len + n] = '\0';
    int rc = expand_entry(e, rest, err);
    e->host.name[len] = '\0';
    return rc;
}

/* Up to RANGE_DIGITS digits. returns how many there are; 0: none, or too many */
static size_t read_range_end(const char *text, unsigned long *ret)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > RANGE_DIGITS)
        return 0;
    *ret = strtoul(text, NULL, 10);
    return n;
}

/* "03" or "03-16", all with as many digits as the first number. returns 0, or as host_list_add() */
static int expand_range(struct entry *e, const char *range, size_t len, const char *rest,
                        struct co_error *err)
{
    unsigned long first, last;
    char number[RANGE_DIGITS + 2];
    size_t n_first = read_range_end(range, &first), n = n_first;
    last = first;
    if (n > 0 && range[n] == '-') {
        size_t n_last = read_range_end(range + n + 1, &last);
        n = n_last > 0 ? n + 1 + n_last : 0;
    }
    if (n == 0 || n != len || last < first)
        return co_fail(err, -EINVAL,
                       "'[%.*s]' is not a valid range; expected one such as [01-16,20]",
                       len < SHOWN ? (int)len : SHOWN, range);
    for (unsigned long i = first; i <= last; i++) {
        int n_digits = snprintf(number, sizeof number, "%0*lu", (int)n_first, i);
        int rc = append(e, number, (size_t)n_digits, rest, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The rest of a name, after what e has of it. The recursion is as deep as there are brackets, each
 * of which adds a byte to the name at least. */
static int expand_entry(struct entry *e, const char *rest, struct co_error *err)
{
    size_t plain = strcspn(rest, "[");
    if (plain > 0)
        return append(e, rest, plain, rest + plain, err);
    if (*rest == '\0') {
        int rc = check_word("host", e->host.name, "._:%-", err);
        return rc < 0 ? rc : add_host(e->to, &e->host, err);
    }
    const char *end = strchr(rest, ']');
    if (end == NULL)
        return co_fail(err, -EINVAL, "'%.*s': the closing ']' is missing", SHOWN, rest);
    for (const char *at = rest + 1;;) {
        size_t len = strcspn(at, ",]");
        int rc = expand_range(e, at, len, end + 1, err);
        if (rc < 0)
            return rc;
        at += len;
        if (at == end)
            return 0;
        at++;
    }
}

/* --- an entry --- */

static int read_number_of(const char *what, const char *text, uint32_t max, uint32_t *ret,
                          struct co_error *err)
{
    int64_t n;
    int rc = co_parse_int(what, text, 1, max, &n, err);
    if (rc == 0)
        *ret = (uint32_t)n;
    return rc;
}

/* Cut ":4" or "*4" off. An address with colons is left whole, its brackets are taken away. */
static int cut_slots(char **name, struct host *h, struct co_error *err)
{
    char *colon = strrchr(*name, ':'), *star = strrchr(*name, '*');
    char *inner_end = strchr(*name, ']');
    bool is_v6 =
        **name == '[' && inner_end != NULL && memchr(*name, ':', (size_t)(inner_end - *name));
    char *slots = star != NULL ? star : colon;
    if (is_v6) {
        slots = inner_end[1] != '\0' ? inner_end + 1 : NULL;
        if (slots != NULL && *slots != ':' && *slots != '*')
            return co_fail(err, -EINVAL, "'%.*s' is not a valid address", SHOWN, *name);
        *inner_end = '\0';
        ++*name;
    } else if (star == NULL && colon != NULL && strchr(*name, ':') != colon) {
        return 0; /* an IPv6 address */
    }
    if (slots == NULL)
        return 0;
    int rc = read_number_of("slots", slots + 1, HOST_SLOTS_MAX, &h->slots, err);
    *slots = '\0';
    return rc;
}

static int add_entry(struct host_list *l, const struct host *settings, const char *text, size_t len,
                     struct co_error *err)
{
    char entry[ENTRY_BYTES];
    struct entry e = {.to = l, .host = *settings};
    if (len >= sizeof entry)
        return co_fail(err, -EINVAL, "entry too long: expected at most %zu bytes",
                       sizeof entry - 1);
    memcpy(entry, text, len);
    entry[len] = '\0';
    char *name = entry, *at = strchr(entry, '@');
    int rc = 0;
    if (at != NULL) {
        *at = '\0';
        name = at + 1;
        rc = check_word("user", entry, "._-+", err);
        if (rc == 0 && strlen(entry) >= sizeof e.host.user)
            rc = co_fail(err, -EINVAL, "user name too long: expected at most %zu bytes",
                         sizeof e.host.user - 1);
        if (rc == 0)
            strcpy(e.host.user, entry);
    }
    if (rc == 0)
        rc = cut_slots(&name, &e.host, err);
    if (rc == 0 && *name == '\0')
        rc = co_fail(err, -EINVAL, "missing host");
    if (rc == 0 && e.host.max_slots != 0 && e.host.slots > e.host.max_slots)
        rc = co_fail(err, -EINVAL, "slots=%u is greater than max-slots=%u", e.host.slots,
                     e.host.max_slots);
    return rc < 0 ? rc : expand_entry(&e, name, err);
}

/* Up to the next comma that is not within brackets. */
static size_t entry_len(const char *text)
{
    size_t len = 0;
    for (bool inside = false; text[len] != '\0' && (text[len] != ',' || inside); len++)
        inside = text[len] == '[' || (inside && text[len] != ']');
    return len;
}

static int add_entries(struct host_list *l, const struct host *settings, const char *text,
                       struct co_error *err)
{
    for (;;) {
        size_t len = entry_len(text);
        int rc = add_entry(l, settings, text, len, err);
        if (rc < 0 || text[len] == '\0')
            return rc;
        text += len + 1;
    }
}

int host_list_add(struct host_list *l, const char *what, const char *text, struct co_error *err)
{
    int rc = add_entries(l, &(const struct host){0}, text, err);
    if (rc < 0)
        co_fail_in(err, "%s", what);
    return rc;
}

/* --- a file --- */

static int read_setting(const char *word, struct host *h, struct co_error *err)
{
    uint32_t port = 0;
    const char *value = strchr(word, '=');
    size_t len = value != NULL ? (size_t)(value - word) : 0;
    int rc;
    if (len == 5 && strncmp(word, "slots", len) == 0)
        return read_number_of("slots", value + 1, HOST_SLOTS_MAX, &h->slots, err);
    if (len == 9 && strncmp(word, "max", 3) == 0 && strncmp(word + 4, "slots", 5) == 0 &&
        (word[3] == '_' || word[3] == '-'))
        return read_number_of("max-slots", value + 1, HOST_SLOTS_MAX, &h->max_slots, err);
    if (len == 4 && strncmp(word, "port", len) == 0) {
        rc = read_number_of("port", value + 1, UINT16_MAX, &port, err);
        h->port = (uint16_t)port;
        return rc;
    }
    return co_fail(err, -EINVAL, "unknown setting '%.*s'; expected slots=N, max-slots=N or port=N",
                   SHOWN, word);
}

/* line   is cut into words */
static int add_line(struct host_list *l, char *line, struct co_error *err)
{
    struct host settings = {0};
    char *rest = NULL;
    line[strcspn(line, "#")] = '\0';
    const char *entries = strtok_r(line, blanks, &rest);
    if (entries == NULL)
        return 0;
    for (const char *word; (word = strtok_r(NULL, blanks, &rest)) != NULL;) {
        int rc = read_setting(word, &settings, err);
        if (rc < 0)
            return rc;
    }
    return add_entries(l, &settings, entries, err);
}

int host_list_add_file(struct host_list *l, const char *path, const char *text, size_t len,
                       struct co_error *err)
{
    if (len > HOST_FILE_MAX_BYTES || memchr(text, '\0', len) != NULL)
        return co_fail(err, -EINVAL, "%s is not a valid host file: it %s", path,
                       len > HOST_FILE_MAX_BYTES ? "is longer than 1 MiB" : "contains a NUL byte");
    co_autofree char *copy = strndup(text, len);
    if (copy == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int rc = 0;
    unsigned number = 1;
    for (char *line = copy; rc == 0 && line < copy + len; number++) {
        size_t n = strcspn(line, "\n");
        line[n] = '\0';
        rc = add_line(l, line, err);
        line += n + 1;
    }
    if (rc < 0)
        co_fail_in(err, "%s:%u", path, number - 1);
    else if (l->n == 0)
        rc = co_fail(err, -EINVAL, "%s lists no hosts; add a line for each host", path);
    return rc;
}

int host_list_read_file(struct host_list *l, const struct host_env *world, const char *by,
                        const char *path, struct co_error *err)
{
    co_autofree char *text = NULL;
    size_t len = 0;
    int rc = world->read_file(world->arg, path, HOST_FILE_MAX_BYTES, &text, &len);
    return rc == 0 ? host_list_add_file(l, path, text, len, err)
                   : co_fail(err, rc == -ENOMEM ? rc : -EINVAL, "%s: cannot read '%.300s': %s", by,
                             path, strerror(-rc));
}

void host_list_fini(struct host_list *l)
{
    free(l->hosts);
    *l = (struct host_list){0};
}

/* --- shares --- */

static int share_slots(const struct host_list *l, uint32_t n_total, uint32_t *ret,
                       struct co_error *err)
{
    uint32_t left = n_total;
    for (size_t i = 0; i < l->n; i++) {
        ret[i] = left < l->hosts[i].slots ? left : l->hosts[i].slots;
        left -= ret[i];
    }
    return left == 0
               ? 0
               : co_fail(err, -EINVAL,
                         "%u ranks requested, but the hosts have %u slots; add hosts or slots",
                         n_total, n_total - left);
}

int host_list_share(const struct host_list *l, uint32_t n_total, uint32_t per_node, uint32_t *ret,
                    struct co_error *err)
{
    size_t n_said = 0;
    int rc = 0;
    for (size_t i = 0; i < l->n; i++)
        n_said += l->hosts[i].slots != 0;
    if (n_total != 0 && per_node == 0 && n_said == l->n)
        return share_slots(l, n_total, ret, err);
    if (n_total != 0 && per_node == 0 && n_total % l->n != 0)
        return co_fail(
            err, -EINVAL,
            "%u ranks are not divisible among %zu hosts; give each host its slots (HOST:SLOTS)",
            n_total, l->n);
    if (n_total != 0 && per_node == 0)
        per_node = n_total / (uint32_t)l->n;
    else if (n_total != 0 && (uint64_t)per_node * l->n != n_total)
        return co_fail(err, -EINVAL,
                       "%u ranks disagree with %u ranks on each of %zu hosts; give one of the two",
                       n_total, per_node, l->n);
    for (size_t i = 0; i < l->n && rc == 0; i++) {
        uint32_t slots = l->hosts[i].slots;
        ret[i] = per_node != 0 ? per_node : slots != 0 ? slots : UINT32_MAX;
        uint32_t max = l->hosts[i].max_slots;
        if (max != 0 && ret[i] != UINT32_MAX && ret[i] > max)
            rc = co_fail(err, -EINVAL, "%u ranks on '%s' exceed its max-slots of %u", ret[i],
                         l->hosts[i].name, max);
    }
    return rc;
}
