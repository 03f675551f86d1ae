#include "pmi1_wire.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_BYTES = 40 }; /* bytes of the wrong input that messages show */

static int check_bytes(const uint8_t *bytes, size_t len, struct co_error *err)
{
    if (len >= PMI1_LINE_BYTES)
        return co_fail(err, -EPROTO, "PMI: a line has %zu bytes: expected at most %d", len,
                       PMI1_LINE_BYTES - 1);
    for (size_t i = 0; i < len; i++)
        if (bytes[i] < ' ' || bytes[i] == 0x7f)
            return co_fail(err, -EPROTO, "PMI: a line contains the control character %u", bytes[i]);
    return 0;
}

static int add_word(const uint8_t *word, size_t len, struct pmi1_line *ret, struct co_error *err)
{
    const uint8_t *equals = memchr(word, '=', len);
    const size_t n_name = equals != NULL ? (size_t)(equals - word) : len;
    if (n_name == 0)
        return co_fail(err, -EPROTO, "PMI: a word is not NAME=VALUE: '%.*s'",
                       (int)(len < SHOWN_BYTES ? len : SHOWN_BYTES), (const char *)word);
    if (ret->n == PMI1_MAX_WORDS)
        return co_fail(err, -EPROTO, "PMI: a line has more than %d words", PMI1_MAX_WORDS);
    ret->words[ret->n].name = (struct wire_bytes){word, n_name};
    ret->words[ret->n].value =
        (struct wire_bytes){word + n_name + (equals != NULL), len - n_name - (equals != NULL)};
    ret->n++;
    return 0;
}

int pmi1_parse(const uint8_t *bytes, size_t len, struct pmi1_line *ret, struct co_error *err)
{
    int rc = check_bytes(bytes, len, err);
    ret->n = 0;
    for (size_t at = 0; rc == 0 && at < len;) {
        const uint8_t *blank = memchr(bytes + at, ' ', len - at);
        const size_t n = blank != NULL ? (size_t)(blank - bytes) - at : len - at;
        if (n > 0)
            rc = add_word(bytes + at, n, ret, err);
        at += n + 1;
    }
    if (rc == 0 && ret->n == 0)
        return co_fail(err, -EPROTO, "PMI: a line is empty");
    return rc;
}

static bool is_text(struct wire_bytes b, const char *text)
{
    return b.len == strlen(text) && memcmp(b.at, text, b.len) == 0;
}

bool pmi1_find(const struct pmi1_line *line, const char *name, struct wire_bytes *ret_value)
{
    for (size_t i = 0; i < line->n; i++) {
        if (!is_text(line->words[i].name, name))
            continue;
        *ret_value = line->words[i].value;
        return true;
    }
    return false;
}

bool pmi1_says(const struct pmi1_line *line, const char *name, const char *value)
{
    struct wire_bytes said;
    return pmi1_find(line, name, &said) && is_text(said, value);
}

int pmi1_find_int(const struct pmi1_line *line, const char *name, int min, int max, int *ret,
                  struct co_error *err)
{
    struct wire_bytes value;
    char text[24];
    int64_t number;
    if (!pmi1_find(line, name, &value))
        return co_fail(err, -EPROTO, "PMI: a line lacks '%s'", name);
    if (value.len >= sizeof text)
        return co_fail(err, -EPROTO, "PMI: %s has %zu digits", name, value.len);
    memcpy(text, value.at, value.len);
    text[value.len] = '\0';
    if (co_parse_int(name, text, min, max, &number, err) < 0)
        return -EPROTO;
    *ret = (int)number;
    return 0;
}

void pmi1_print_failure(const struct co_error *why, char ret_value[PMI1_VALUE_BYTES])
{
    size_t at = 0;
    ret_value[at++] = '!';
    for (const char *c = why->text; *c != '\0' && at + sizeof "%20" <= PMI1_VALUE_BYTES; c++)
        if (*c == ' ' || *c == '%')
            at = (size_t)(stpcpy(ret_value + at, *c == ' ' ? "%20" : "%25") - ret_value);
        else
            ret_value[at++] = (char)(*c < ' ' || *c == 0x7f ? '_' : *c);
    ret_value[at] = '\0';
}

void pmi1_restore_failure(char *value)
{
    if (value[0] != '!')
        return;
    char *to = value;
    for (const char *from = value; *from != '\0';) {
        const bool is_blank = strncmp(from, "%20", 3) == 0;
        const bool is_escaped = is_blank || strncmp(from, "%25", 3) == 0;
        *to++ = (char)(is_blank ? ' ' : *from);
        from += is_escaped ? 3 : 1;
    }
    *to = '\0';
}

int pmi1_next_line(const uint8_t *bytes, size_t len, size_t *ret_len, struct co_error *err)
{
    const size_t most = len < PMI1_LINE_BYTES ? len : PMI1_LINE_BYTES;
    const uint8_t *newline = most > 0 ? memchr(bytes, '\n', most) : NULL;
    if (newline != NULL) {
        *ret_len = (size_t)(newline - bytes);
        return 0;
    }
    if (len >= PMI1_LINE_BYTES)
        return co_fail(err, -EPROTO, "PMI: a line has more than %d bytes", PMI1_LINE_BYTES);
    return -EAGAIN;
}
