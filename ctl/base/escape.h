/* escape.h - bytes of any kind, shown on a line: what a terminal or a script could take for its own
 * is spelled out. */
#ifndef DDP_CTL_BASE_ESCAPE_H
#define DDP_CTL_BASE_ESCAPE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Printable ASCII is itself; a backslash is \\, others are \n, \r, \t or \xHH. So two different
 * runs of bytes are never shown alike, and bash's printf %b gives them back. */
void escape_print(const uint8_t *bytes, size_t len, FILE *out);

#endif
