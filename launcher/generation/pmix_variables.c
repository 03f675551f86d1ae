#include "pmix_variables.h"

#include "common/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_variable(struct pmix_variables *v, const char *name, const char *value,
                        bool is_default)
{
    if (v->n == WORKER_VARIABLES_MAX)
        return -E2BIG;
    v->of[v->n++] =
        (struct worker_variable){.name = name, .value = value, .is_default = is_default};
    return 0;
}

/* PMIX_RANK is each rank's own. */
static int add_of_libpmix(struct pmix_variables *v, char *const *text)
{
    int n = 0;
    while (text != NULL && text[n] != NULL)
        n++;
    v->names = calloc((size_t)n + 1, sizeof *v->names);
    int rc = v->names != NULL ? 0 : -ENOMEM;
    for (int i = 0; rc == 0 && i < n; i++) {
        const char *equals = strchr(text[i], '=');
        if (equals == NULL || strncmp(text[i], "PMIX_RANK=", strlen("PMIX_RANK=")) == 0)
            continue;
        char *name = strndup(text[i], (size_t)(equals - text[i]));
        size_t at = 0;
        while (v->names[at] != NULL)
            at++;
        v->names[at] = name;
        rc = name != NULL ? add_variable(v, name, equals + 1, false) : -ENOMEM;
    }
    return rc;
}

static int add_number(struct pmix_variables *v, int at, const char *name, int number)
{
    snprintf(v->numbers[at], sizeof v->numbers[at], "%d", number);
    return add_variable(v, name, v->numbers[at], false);
}

/* Open MPI 4 has a list of launchers, and runs alone under any other: without a component that
 * decides, it uses PMIx. Like those of its list, ddprun binds ranks itself. Open MPI 5 ignores
 * these. */
static int add_of_launcher(struct pmix_variables *v, const struct pmix_variables_opts *opts)
{
    return add_variable(v, "OMPI_MCA_schizo", "^orte,slurm,flux,jsm,ompi", false)
               ?: add_variable(v, "OMPI_MCA_orte_externally_bound", "1", false)
               ?: add_variable(v, "OMPI_MCA_hwloc_base_binding_policy", "none", true)
               ?: add_number(v, 0, "OMPI_COMM_WORLD_SIZE", opts->world_size)
               ?: add_number(v, 1, "OMPI_COMM_WORLD_LOCAL_SIZE", opts->n_local);
}

static int add_of_shared(struct pmix_variables *v, const char *directory)
{
    static const char *const names[] = {
        "OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory",
        "OMPI_MCA_osc_sm_backing_directory", "OMPI_MCA_osc_rdma_backing_directory",
        "OMPI_MCA_osc_ucx_backing_directory"};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof names / sizeof *names; i++)
        rc = add_variable(v, names[i], directory, true);
    return rc;
}

/* Waiting ranks that do not yield make others wait for their time slice: a small all-reduce takes
 * 19 ms instead of 0.3. Open MPI 5 gets it by PMIx. */
static int add_of_crowd(struct pmix_variables *v, bool is_oversubscribed)
{
    return is_oversubscribed ? add_variable(v, "OMPI_MCA_mpi_oversubscribe", "1", true) : 0;
}

static int add_of_network(struct pmix_variables *v, const char *interface)
{
    return interface != NULL ? add_variable(v, "OMPI_MCA_btl_tcp_if_include", interface, true) : 0;
}

void pmix_variables_fini(struct pmix_variables *v)
{
    for (char **name = v->names; name != NULL && *name != NULL; name++)
        free(*name);
    free(v->names);
    v->names = NULL;
    v->n = 0;
}

int pmix_variables_fill(struct pmix_variables *v, const struct pmix_variables_opts *opts,
                        struct co_error *err)
{
    pmix_variables_fini(v);
    int rc = add_of_libpmix(v, opts->of_libpmix)
                 ?: add_of_launcher(v, opts)
                 ?: add_of_shared(v, opts->shared_directory)
                 ?: add_of_crowd(v, opts->is_oversubscribed)
                 ?: add_of_network(v, opts->interface);
    return rc == 0
               ? 0
               : co_fail(err, rc, "cannot make the environment of the ranks: %s", strerror(-rc));
}
