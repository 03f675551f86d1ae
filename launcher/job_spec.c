#include "job_spec.h"

#include <stdlib.h>

void job_spec_fini(struct job_spec *spec)
{
    free(spec->run_id);
    free(spec->role);
    free(spec->master_addr);
    free(spec->path);
    free(spec->argv);
    free(spec->shown);
    output_spec_fini(&spec->output);
    *spec = (struct job_spec){0};
}
