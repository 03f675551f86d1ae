#include "optional_symbols.h"

#include <dlfcn.h>

/* The library is loaded already: the plug-in is linked against it. */
void optional_symbols_look_up(struct newer *n)
{
#define LOOK_UP(name) n->name = (__typeof__(n->name))dlsym(RTLD_DEFAULT, #name);
    NEWER_CALLS(LOOK_UP)
#undef LOOK_UP
}
