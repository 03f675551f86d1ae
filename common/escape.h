/* escape.h - bytes of any kind, shown: what a terminal, a script or a browser could take for its
 * own is spelled out. */
#ifndef DDP_COMMON_ESCAPE_H
#define DDP_COMMON_ESCAPE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* On a line: printable ASCII is itself; a backslash is \\, others are \n, \r, \t or \xHH. So two
 * different runs of bytes are never shown alike, and bash's printf %b gives them back. */
void co_escape_print(const uint8_t *bytes, size_t len, FILE *out);

/* In HTML, between tags and inside of quotes: & < > " ' are spelled out, control characters and
 * what is not UTF-8 become U+FFFD, newlines stay. */
void co_escape_html(const char *text, FILE *out);

/* printf(), made harmless as a whole. Texts are cut to some thousand bytes. */
__attribute__((format(printf, 2, 3))) void co_escape_html_printf(FILE *out, const char *format,
                                                                 ...);

#endif
