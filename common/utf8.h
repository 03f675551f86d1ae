/* utf8.h - characters to bytes, and whether bytes are characters. */
#ifndef DDP_COMMON_UTF8_H
#define DDP_COMMON_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Write a code point, at most 0x10ffff, and return how many bytes it took, 1 to 4. */
unsigned co_utf8_encode(uint32_t code_point, char *to);

/* The bytes of the character that begins at `text`, of which `size` bytes may be read, at least 1.
 * 0: none begins there. No overlong forms, no halves of pairs, nothing beyond 0x10ffff. */
size_t co_utf8_length(const char *text, size_t size);

bool co_utf8_is_valid(const char *text, size_t size);

/* Does a control character begin at `text`: of ASCII, or U+0080 to U+009F, two bytes, of which a
 * terminal executes some? `size` as above. */
bool co_utf8_is_control(const char *text, size_t size);

/* Make a text of another process fit for a terminal, a log, or a message: each byte of a control
 * character, newlines and tabs included, and each that is not UTF-8, becomes '?'. */
void co_utf8_clean(char *text, size_t size);

#endif
