/* Precedes the library that has linkage_shared.c, when ddprun-static is linked. */
#include "linkage.h"

#include "common/error.h"

#include <errno.h>
#include <nss.h>

bool linkage_is_static(void)
{
    return true;
}

/* The two are part of the C library since glibc 2.34. The static program never looks up user
 * names. */
void linkage_init(void)
{
    __nss_configure_lookup("hosts", "files dns");
}

int linkage_load(const char *name, void **ret, struct co_error *err)
{
    (void)name, (void)ret;
    return co_fail(err, -ELIBACC,
                   "this is ddprun-static, which does not load libraries; use an installed ddprun");
}
