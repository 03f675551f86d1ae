/* html.h - text of any kind inside of a page. */
#ifndef DDP_CTL_BASE_HTML_H
#define DDP_CTL_BASE_HTML_H

#include <stdio.h>

/* Write text so that it means itself in HTML, between tags and inside of quotes: & < > " ' are
 * spelled out, control characters and what is not UTF-8 become U+FFFD, newlines stay. */
void html_put(const char *text, FILE *out);

/* printf(), made harmless as a whole. Texts are cut to some thousand bytes. */
__attribute__((format(printf, 2, 3))) void html_printf(FILE *out, const char *format, ...);

#endif
