#include "linkage.h"

#include "common/error.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

bool linkage_is_static(void)
{
    return false;
}

void linkage_init(void)
{
}

int linkage_load(const char *name, void **ret, struct co_error *err)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return co_fail(err, -ELIBACC, "%s", dlerror());
    *ret = library;
    return 0;
}
