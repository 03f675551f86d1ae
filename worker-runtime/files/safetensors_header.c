/* safetensors_header.c - the JSON of a header: an object of tensors, whose fields are known.
 *
 * safetensors_header_parse() reads by read_object(), which calls read_tensor() for each tensor and
 * read_field() for each field. Texts are decoded into h->strings, one after the other: none
 * becomes longer by that. order_tensors() then checks that the tensors cover the data without a
 * gap. safetensors_header_format() is the way back. */
#include "safetensors_header.h"

#include "common/error.h"
#include "common/scope.h"
#include "common/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* --- element types ---------------------------------------------------------------------------- */

static const struct type {
    const char *name;
    size_t bytes;
    int dtype; /* enum ddp_dtype; -1: none of ours */
} types[] = {
    {"F64", 8, DDP_FLOAT64}, {"F32", 4, DDP_FLOAT32},
    {"F16", 2, DDP_FLOAT16}, {"BF16", 2, DDP_BFLOAT16},
    {"I64", 8, DDP_INT64},   {"I32", 4, DDP_INT32},
    {"I8", 1, DDP_INT8},     {"U64", 8, DDP_UINT64},
    {"U32", 4, DDP_UINT32},  {"U8", 1, DDP_UINT8},
    {"I16", 2, -1},          {"U16", 2, -1},
    {"BOOL", 1, -1},         {"F8_E4M3", 1, -1},
    {"F8_E5M2", 1, -1},      {"C64", 8, -1},
};
enum { N_TYPES = sizeof types / sizeof types[0] };

/* NULL: unknown */
static const struct type *type_of(int dtype)
{
    for (const struct type *t = types; t < types + N_TYPES; t++)
        if (dtype >= 0 && t->dtype == dtype)
            return t;
    return NULL;
}

/* --- a header that is read -------------------------------------------------------------------- */

struct place { /* of a tensor; used in addition to its entry while the header is read */
    uint64_t begin, end;
    size_t tensor;
};

struct scan {
    const char *text, *at, *end;
    char *free; /* where the next string goes: decoded ones are shorter than they were */
    struct safetensors_header *h;
    struct place *places;    /* owned; one for each tensor */
    size_t room, texts_room; /* of tensors and places; of texts */
    bool has_metadata;
    struct co_error *err;
};

/* --- tokens ----------------------------------------------------------------------------------- */

static int fail_at(struct scan *s, const char *what)
{
    return co_fail(s->err, -EINVAL, "%s at byte %zu of the header", what,
                   (size_t)(s->at - s->text));
}

static void skip_space(struct scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
        s->at++;
}

/* The next character that is not a space; 0: the end. */
static char peek_char(struct scan *s)
{
    skip_space(s);
    return s->at < s->end ? *s->at : '\0';
}

static bool take_char(struct scan *s, char c)
{
    if (peek_char(s) != c)
        return false;
    s->at++;
    return true;
}

static int expect_char(struct scan *s, char c, const char *what)
{
    return take_char(s, c) ? 0 : fail_at(s, what);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The four digits after \u. */
static int read_unit(struct scan *s, uint32_t *ret)
{
    uint32_t unit = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        const int digit = s->at < s->end ? hex_digit(*s->at) : -1;
        if (digit < 0)
            return fail_at(s, "\\u without four digits");
        unit = unit << 4 | (uint32_t)digit;
    }
    *ret = unit;
    return 0;
}

static int read_code_point(struct scan *s, uint32_t *ret)
{
    uint32_t high, low;
    int code = read_unit(s, &high);
    if (code != 0)
        return code;
    if (high >= 0xd800 && high < 0xdc00) {
        if (s->end - s->at < 2 || s->at[0] != '\\' || s->at[1] != 'u')
            return fail_at(s, "an unpaired \\u surrogate");
        s->at += 2;
        if ((code = read_unit(s, &low)) != 0)
            return code;
        if (low < 0xdc00 || low > 0xdfff)
            return fail_at(s, "an unpaired \\u surrogate");
        high = 0x10000 + ((high & 0x3ff) << 10) + (low & 0x3ff);
    } else if (high >= 0xdc00 && high < 0xe000) {
        return fail_at(s, "an unpaired \\u surrogate");
    }
    if (high == 0)
        return fail_at(s, "a string with a zero byte");
    *ret = high;
    return 0;
}

static int read_escape(struct scan *s)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char c = s->at < s->end ? *s->at : '\0';
    const char *found = c != '\0' ? strchr(from, c) : NULL;
    uint32_t code_point = 0;
    if (found != NULL) {
        s->at++;
        *s->free++ = to[found - from];
        return 0;
    }
    if (c != 'u')
        return fail_at(s, "an unknown escape");
    s->at++;
    int code = read_code_point(s, &code_point);
    if (code == 0)
        s->free += co_utf8_encode(code_point, s->free); /* at most 4 bytes for 6 or 12 */
    return code;
}

/* ret   in h->strings */
static int read_string(struct scan *s, const char **ret)
{
    int code = expect_char(s, '"', "expected a string");
    const char *first = s->free;
    while (code == 0 && s->at < s->end && *s->at != '"') {
        if (*s->at == '\\') {
            s->at++;
            code = read_escape(s);
            continue;
        }
        if ((unsigned char)*s->at < 0x20)
            return fail_at(s, "a control character in a string");
        *s->free++ = *s->at++;
    }
    if (code != 0)
        return code;
    if (s->at == s->end)
        return fail_at(s, "an unterminated string");
    if (!co_utf8_is_valid(first, (size_t)(s->free - first)))
        return fail_at(s, "a string that is not valid UTF-8 ends");
    s->at++;
    *s->free++ = '\0'; /* replaces a quotation mark */
    *ret = first;
    return 0;
}

static int read_number(struct scan *s, uint64_t *ret)
{
    uint64_t value = 0;
    skip_space(s);
    const char *first = s->at;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*s->at - '0'), &value) || value > INT64_MAX)
            return fail_at(s, "a number that is too large");
    if (s->at == first || (*first == '0' && s->at - first > 1))
        return fail_at(s, "expected an integer");
    *ret = value;
    return 0;
}

/* Up to `most` numbers in brackets. */
static int read_list(struct scan *s, uint64_t *values, unsigned most, unsigned *ret_n)
{
    unsigned n = 0;
    int code = expect_char(s, '[', "expected a list");
    if (code != 0)
        return code;
    if (!take_char(s, ']')) {
        do {
            if (n == most)
                return fail_at(s, "a list is too long");
            if ((code = read_number(s, &values[n++])) != 0)
                return code;
        } while (take_char(s, ','));
        if ((code = expect_char(s, ']', "expected the end of a list")) != 0)
            return code;
    }
    *ret_n = n;
    return 0;
}

/* Call `member` for each key of an object, its value being next. */
static int read_object(struct scan *s, int (*member)(struct scan *s, const char *key, void *arg),
                       void *arg)
{
    int code = expect_char(s, '{', "expected an object");
    if (code != 0 || take_char(s, '}'))
        return code;
    do {
        const char *key;
        if ((code = read_string(s, &key)) != 0 ||
            (code = expect_char(s, ':', "expected a colon")) != 0 ||
            (code = member(s, key, arg)) != 0)
            return code;
    } while (take_char(s, ','));
    return expect_char(s, '}', "expected the end of an object");
}

/* --- what they mean --------------------------------------------------------------------------- */

/* Space for one element more in an array that doubles. */
static int grow_array(void **array, size_t n, size_t *room, size_t size, struct co_error *err)
{
    if (n < *room)
        return 0;
    const size_t more = *room > 0 ? *room * 2 : 16;
    void *grown = realloc(*array, more * size);
    if (grown == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    *array = grown;
    *room = more;
    return 0;
}

static int read_text(struct scan *s, const char *key, void *arg)
{
    (void)arg;
    struct safetensors_header *h = s->h;
    struct ddp_safetensors_text t = {.key = key};
    if (h->n_texts == DDP_SAFETENSORS_MAX_METADATA)
        return fail_at(s, "too many metadata entries");
    int code = read_string(s, &t.value);
    if (code == 0)
        code = grow_array((void **)&h->texts, h->n_texts, &s->texts_room, sizeof t, s->err);
    if (code == 0)
        h->texts[h->n_texts++] = t;
    return code;
}

struct fields { /* of a tensor */
    const char *type;
    uint64_t shape[DDP_SAFETENSORS_MAX_DIMS], offsets[2];
    unsigned n_dims, n_offsets;
    bool has_shape;
};

static int read_field(struct scan *s, const char *key, void *arg)
{
    struct fields *f = arg;
    if (strcmp(key, "dtype") == 0 && f->type == NULL)
        return read_string(s, &f->type);
    if (strcmp(key, "shape") == 0 && !f->has_shape) {
        f->has_shape = true;
        return read_list(s, f->shape, DDP_SAFETENSORS_MAX_DIMS, &f->n_dims);
    }
    if (strcmp(key, "data_offsets") == 0 && f->n_offsets == 0)
        return read_list(s, f->offsets, 2, &f->n_offsets);
    return fail_at(s, "an unknown or repeated field of a tensor");
}

static int check_tensor(struct scan *s, const struct fields *f, struct ddp_safetensors_tensor *t)
{
    const struct type *type = types, *end = types + N_TYPES;
    uint64_t bytes;
    while (type < end && strcmp(type->name, f->type) != 0)
        type++;
    if (type == end)
        return co_fail(s->err, -EINVAL, "tensor '%.100s' has the unknown type '%.20s'", t->name,
                       f->type);
    t->type = type->name;
    t->dtype = type->dtype;
    t->n_dims = f->n_dims;
    bytes = type->bytes;
    for (unsigned i = 0; i < f->n_dims; i++) {
        t->shape[i] = (size_t)f->shape[i];
        if (__builtin_mul_overflow(bytes, f->shape[i], &bytes))
            return co_fail(s->err, -EINVAL, "the shape of tensor '%.100s' has too many elements",
                           t->name);
    }
    if (f->offsets[0] > f->offsets[1] || f->offsets[1] - f->offsets[0] != bytes)
        return co_fail(s->err, -EINVAL,
                       "tensor '%.100s' needs %" PRIu64 " bytes, but its data_offsets are %" PRIu64
                       " to %" PRIu64,
                       t->name, bytes, f->offsets[0], f->offsets[1]);
    t->bytes = (size_t)bytes;
    return 0;
}

static int read_tensor(struct scan *s, const char *name, void *arg)
{
    (void)arg;
    struct safetensors_header *h = s->h;
    struct ddp_safetensors_tensor t = {.name = name};
    struct fields f = {0};
    size_t room = s->room; /* both arrays grow at the same time */
    if (strcmp(name, "__metadata__") == 0) {
        if (s->has_metadata)
            return fail_at(s, "repeated metadata");
        s->has_metadata = true;
        return read_object(s, read_text, NULL);
    }
    if (h->n == DDP_SAFETENSORS_MAX_TENSORS)
        return fail_at(s, "too many tensors");
    if (strlen(name) > DDP_SAFETENSORS_MAX_NAME)
        return fail_at(s, "a name is too long");
    int code = read_object(s, read_field, &f);
    if (code != 0)
        return code;
    if (f.type == NULL || !f.has_shape || f.n_offsets != 2)
        return co_fail(s->err, -EINVAL, "tensor '%.100s' lacks dtype, shape or data_offsets", name);
    if ((code = check_tensor(s, &f, &t)) != 0 ||
        (code = grow_array((void **)&h->tensors, h->n, &s->room, sizeof t, s->err)) != 0 ||
        (code = grow_array((void **)&s->places, h->n, &room, sizeof *s->places, s->err)) != 0)
        return code;
    s->places[h->n] = (struct place){f.offsets[0], f.offsets[1], h->n};
    h->tensors[h->n++] = t;
    return 0;
}

/* --- the whole -------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

/* Put the tensors into the order of their places, which must follow each other. */
static int order_tensors(struct scan *s, uint64_t data_bytes)
{
    struct safetensors_header *h = s->h;
    uint64_t end = 0;
    if (h->n > 0)
        qsort(s->places, h->n, sizeof *s->places, by_place);
    co_autofree struct ddp_safetensors_tensor *sorted = calloc(h->n + 1, sizeof *sorted);
    if (sorted == NULL)
        return co_fail(s->err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < h->n; i++) {
        const struct place *p = &s->places[i];
        sorted[i] = h->tensors[p->tensor];
        if (p->begin != end)
            return co_fail(s->err, -EINVAL,
                           "tensor '%.100s' starts at byte %" PRIu64
                           ", but the previous one ends at %" PRIu64,
                           sorted[i].name, p->begin, end);
        end = p->end;
    }
    if (end != data_bytes)
        return co_fail(s->err, -EINVAL,
                       "the tensors have %" PRIu64 " bytes, but the file has %" PRIu64, end,
                       data_bytes);
    free(h->tensors);
    h->tensors = co_take(&sorted);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* No name twice; names are at `first` of n elements of `size` bytes. */
static int check_names(const void *first, size_t n, size_t size, struct co_error *err)
{
    co_autofree const char **names = calloc(n + 1, sizeof *names);
    if (names == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        memcpy(&names[i], (const char *)first + i * size, sizeof names[i]);
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return co_fail(err, -EINVAL, "duplicate tensor name '%.100s'", names[i]);
    return 0;
}
_Static_assert(offsetof(struct ddp_safetensors_tensor, name) == 0, "names are first");
_Static_assert(offsetof(struct ddp_safetensors_text, key) == 0, "keys are first");

static int read_all(struct scan *s, uint64_t data_bytes)
{
    if (s->at == s->end || *s->at != '{')
        return fail_at(s, "expected a JSON object");
    int code = read_object(s, read_tensor, NULL);
    if (code != 0)
        return code;
    if (peek_char(s) != '\0' || s->at != s->end)
        return fail_at(s, "unexpected data after the JSON object");
    if ((code = order_tensors(s, data_bytes)) != 0)
        return code;
    code = check_names(s->h->tensors, s->h->n, sizeof *s->h->tensors, s->err);
    return code == 0 ? check_names(s->h->texts, s->h->n_texts, sizeof *s->h->texts, s->err) : code;
}

int safetensors_header_parse(const char *text, size_t size, uint64_t data_bytes,
                             struct safetensors_header *ret, struct co_error *err)
{
    struct safetensors_header h = {0};
    if (size > DDP_SAFETENSORS_MAX_HEADER)
        return co_fail(err, -EINVAL, "a header of %zu bytes exceeds the maximum of %d", size,
                       DDP_SAFETENSORS_MAX_HEADER);
    h.strings = malloc(size + 1);
    if (h.strings == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    struct scan s = {
        .text = text, .at = text, .end = text + size, .free = h.strings, .h = &h, .err = err};
    int code = read_all(&s, data_bytes);
    free(s.places);
    if (code != 0) {
        safetensors_header_fini(&h);
        return code;
    }
    *ret = h;
    return 0;
}

void safetensors_header_fini(struct safetensors_header *h)
{
    free(h->tensors);
    free(h->texts);
    free(h->strings);
    *h = (struct safetensors_header){0};
}

/* --- writing ---------------------------------------------------------------------------------- */

int safetensors_bytes(const struct ddp_safetensors_tensor *t, size_t *ret_bytes,
                      struct co_error *err)
{
    const struct type *type = type_of(t->dtype);
    if (type == NULL)
        return co_fail(
            err, -EINVAL,
            "tensor '%.100s': invalid value %d for dtype: expected one of enum ddp_dtype", t->name,
            t->dtype);
    if (t->n_dims > DDP_SAFETENSORS_MAX_DIMS)
        return co_fail(err, -EINVAL, "tensor '%.100s' has %u dimensions: expected at most %d",
                       t->name, t->n_dims, DDP_SAFETENSORS_MAX_DIMS);
    size_t bytes = type->bytes;
    for (unsigned i = 0; i < t->n_dims; i++)
        if (__builtin_mul_overflow(bytes, t->shape[i], &bytes) || bytes > PTRDIFF_MAX)
            return co_fail(err, -EINVAL, "the elements of tensor '%.100s' exceed the address space",
                           t->name);
    *ret_bytes = bytes;
    return 0;
}

static int check_string(const char *text, size_t most, const char *what, struct co_error *err)
{
    if (text == NULL || strnlen(text, most + 1) > most)
        return co_fail(err, -EINVAL, "%s is NULL or longer than %zu bytes", what, most);
    if (!co_utf8_is_valid(text, strlen(text)))
        return co_fail(err, -EINVAL, "%s '%.100s' is not valid UTF-8", what, text);
    return 0;
}

static int check_input(const struct ddp_safetensors_tensor *tensors, size_t n,
                       const struct ddp_safetensors_text *texts, size_t n_texts,
                       struct co_error *err)
{
    int code = 0;
    if (n > DDP_SAFETENSORS_MAX_TENSORS || n_texts > DDP_SAFETENSORS_MAX_METADATA)
        return co_fail(err, -EINVAL, "%zu tensors and %zu texts exceed the maximum of a file", n,
                       n_texts);
    for (size_t i = 0; i < n && code == 0; i++) {
        code = check_string(tensors[i].name, DDP_SAFETENSORS_MAX_NAME, "a tensor's name", err);
        if (code == 0 &&
            (tensors[i].name[0] == '\0' || strcmp(tensors[i].name, "__metadata__") == 0))
            code = co_fail(err, -EINVAL, "invalid tensor name '%s': it is %s", tensors[i].name,
                           tensors[i].name[0] == '\0' ? "empty" : "reserved");
    }
    for (size_t i = 0; i < n_texts && code == 0; i++) {
        code = check_string(texts[i].key, DDP_SAFETENSORS_MAX_NAME, "a key", err);
        if (code == 0)
            code = check_string(texts[i].value, DDP_SAFETENSORS_MAX_HEADER, "a text", err);
    }
    if (code == 0)
        code = check_names(tensors, n, sizeof *tensors, err);
    return code == 0 ? check_names(texts, n_texts, sizeof *texts, err) : code;
}

static void print_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(out, "\\u%04x", *c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

static void print_texts(FILE *out, const struct ddp_safetensors_text *texts, size_t n)
{
    fputs("\"__metadata__\":{", out);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            fputc(',', out);
        print_string(out, texts[i].key);
        fputc(':', out);
        print_string(out, texts[i].value);
    }
    fputc('}', out);
}

static void print_tensor(FILE *out, const struct ddp_safetensors_tensor *t, uint64_t begin,
                         uint64_t end)
{
    print_string(out, t->name);
    fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", type_of(t->dtype)->name);
    for (unsigned i = 0; i < t->n_dims; i++)
        fprintf(out, "%s%zu", i > 0 ? "," : "", t->shape[i]);
    fprintf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
}

static int print_all(FILE *out, const struct ddp_safetensors_tensor *tensors, size_t n,
                     const struct ddp_safetensors_text *texts, size_t n_texts, uint64_t *ret_data,
                     struct co_error *err)
{
    uint64_t at = 0;
    fputc('{', out);
    if (n_texts > 0)
        print_texts(out, texts, n_texts);
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        int code = safetensors_bytes(&tensors[i], &bytes, err);
        if (code != 0)
            return code;
        if (__builtin_add_overflow(at, bytes, ret_data))
            return co_fail(err, -EINVAL, "the tensors exceed the maximum file size");
        if (i > 0 || n_texts > 0)
            fputc(',', out);
        print_tensor(out, &tensors[i], at, *ret_data);
        at = *ret_data;
    }
    fputc('}', out);
    while (ftell(out) % 8 != 0) /* also aligned after the 8 bytes of its length */
        fputc(' ', out);
    *ret_data = at;
    return 0;
}

int safetensors_header_format(const struct ddp_safetensors_tensor *tensors, size_t n,
                              const struct ddp_safetensors_text *texts, size_t n_texts,
                              char **ret_text, size_t *ret_size, uint64_t *ret_data,
                              struct co_error *err)
{
    co_autofree char *text = NULL;
    size_t size = 0;
    int code = check_input(tensors, n, texts, n_texts, err);
    if (code != 0)
        return code;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    code = print_all(out, tensors, n, texts, n_texts, ret_data, err);
    const bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed)
        return co_fail(err, -ENOMEM, "out of memory");
    if (code != 0)
        return code;
    if (size > DDP_SAFETENSORS_MAX_HEADER)
        return co_fail(err, -EINVAL, "the header has %zu bytes: expected at most %d", size,
                       DDP_SAFETENSORS_MAX_HEADER);
    *ret_text = co_take(&text);
    *ret_size = size;
    return 0;
}
