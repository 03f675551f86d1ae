#include "remote_spec.h"

#include <stdlib.h>

struct remote_spec *remote_spec_create(void)
{
    return calloc(1, sizeof(struct remote_spec));
}

void remote_spec_destroy(struct remote_spec *r)
{
    if (r == NULL)
        return;
    host_list_fini(&r->hosts);
    free(r->shares);
    free(r->command);
    free(r);
}
