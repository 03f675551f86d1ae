/* parse.h - text from outside to numbers, within bounds. The whole text must be the number: blanks,
 * signs where none make sense and trailing characters are errors. */
#ifndef DDP_COMMON_PARSE_H
#define DDP_COMMON_PARSE_H

#include <stddef.h>
#include <stdint.h>

struct co_error;

/* A decimal integer, min <= value <= max.
 *
 * what      named in the message: "--nproc-per-node 'x' is not a number"
 * returns   0, -EINVAL (not a number), -ERANGE (out of bounds; the text names the bound) */
int co_parse_int(const char *what, const char *text, int64_t min, int64_t max, int64_t *ret_value,
                 struct co_error *err);

/* A duration: "90", "90s", "1.5s", "250ms", "10m", "2h"; a bare number is seconds. At most 10^9 s.
 *
 * returns   0, -EINVAL, -ERANGE */
int co_parse_duration_ms(const char *what, const char *text, uint64_t *ret_ms,
                         struct co_error *err);

/* A number of bytes, min <= size <= max: "4096", "64K", "64M"; K, M, G and T are powers of
 * 1024, and may be written KiB and so on.
 *
 * returns   0, -EINVAL, -ERANGE (the text has the bounds) */
int co_parse_size(const char *what, const char *text, uint64_t min, uint64_t max,
                  uint64_t *ret_bytes, struct co_error *err);

/* HOST, HOST:PORT, [IPV6] or [IPV6]:PORT. HOST is not resolved.
 *
 * host       host_size bytes, including the NUL
 * ret_port   unchanged without a port
 * returns    0, -EINVAL (also a host that is empty or too long) */
int co_parse_endpoint(const char *what, const char *text, char *host, size_t host_size,
                      uint16_t *ret_port, struct co_error *err);

/* The words between blanks and line ends; there are no quotes.
 *
 * returns   NULL-terminated, in one block, owned by the caller; there may be none. NULL without
 *           memory */
char **co_parse_words(const char *text);

size_t co_count_words(char *const *words); /* NULL-terminated */

/* The words of n lists, one list after the other. Lists and result are NULL-terminated.
 *
 * returns   in one block, owned by the caller; NULL without memory */
char **co_join_words(char *const *const *lists, size_t n);

/* Bytes as 2 * n hexadecimal digits, in small letters.
 *
 * text      NULL is malformed
 * to        of co_print_hex(): 2 * n + 1 bytes
 * returns   0, -EINVAL: not exactly so many digits */
int co_parse_hex(const char *text, uint8_t *ret, size_t n);
void co_print_hex(const uint8_t *bytes, size_t n, char *to);

/* How many single-character edits turn a into b (Levenshtein), at most `limit`: for "did you
 * mean". */
int co_edit_distance(const char *a, const char *b, int limit);

/* A text as printf() makes it. returns one to free(); NULL: out of memory */
__attribute__((format(printf, 1, 2))) char *co_format(const char *format, ...);

#endif
