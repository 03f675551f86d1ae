/* utf8.h - characters to bytes, and whether bytes are characters. Pure. */
#ifndef DDP_WORKER_RUNTIME_FILES_UTF8_H
#define DDP_WORKER_RUNTIME_FILES_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Write a code point, at most 0x10ffff, and return how many bytes it took, 1 to 4. */
unsigned utf8_encode(uint32_t code_point, char *to);

/* No overlong forms, no halves of pairs, nothing beyond 0x10ffff. */
bool utf8_is_valid(const char *text, size_t size);

#endif
