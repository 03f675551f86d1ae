#include "title.h"

#include <string.h>
#include <sys/prctl.h>

static struct {
    char *start, *end; /* the strings of argv, one after the other */
} words;

void title_init(int argc, char **argv)
{
    if (argc < 1)
        return;
    words.start = argv[0];
    words.end = argv[0] + strlen(argv[0]) + 1;
    for (int i = 1; i < argc && argv[i] == words.end; i++)
        words.end += strlen(argv[i]) + 1;
}

void title_set(const char *name)
{
    prctl(PR_SET_NAME, name);
    if (words.start == NULL)
        return;
    size_t room = (size_t)(words.end - words.start);
    size_t n =
        strnlen(name, room - 1); /* ended by a 0: else the kernel also shows the environment */
    memset(words.start, 0, room);
    memcpy(words.start, name, n);
}
