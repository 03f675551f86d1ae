/* option_text.h - what a row of an option table means to a shell. Prints to stdout. */
#ifndef DDP_CTL_COMPLETION_OPTION_TEXT_H
#define DDP_CTL_COMPLETION_OPTION_TEXT_H

#include "common/options.h"

bool option_text_has_words(const struct co_option *o); /* its value may be one of some words */

/* Print these words, with `between` between them. returns how many there are */
int option_text_print_words(const struct co_option *o, const char *between);

/* The first sentence of a help text, without what the shell would read as its own. */
void option_text_print_summary(const char *help, const char *dropped);

/* A line for each option: as arguments of zsh's _arguments, and as fish commands that begin so. */
void option_text_print_zsh(const struct co_option *table);
void option_text_print_fish(const char *begin, const struct co_option *table);

#endif
