#include "job_spec.h"

#include <stddef.h>
#include <stdlib.h>

bool job_spec_agent_store(const struct job_spec *spec)
{
    return spec->store == STORE_AGENT || (spec->store == STORE_AUTO && spec->n_local > 1);
}

void job_spec_fini(struct job_spec *spec)
{
    void *owned[] = {
        spec->notes,          spec->run_id, spec->role,   spec->backend,
        spec->master_addr,    spec->path,   spec->argv,   spec->shown,
        spec->local_rank_arg, spec->events, spec->report, spec->signals_to_handle,
    };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    output_spec_fini(&spec->output);
    *spec = (struct job_spec){0};
}
