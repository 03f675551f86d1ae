/* node_features.c - what a node can do besides running ranks: the list, and a call for all. */
#include "node_console.h"
#include "node_dump.h"
#include "node_errors.h"
#include "node_goodput.h"
#include "node_hang.h"
#include "node_http.h"
#include "node_leave.h"
#include "node_pmi.h"
#include "node_priv.h"
#include "node_report.h"
#include "node_stacks.h"
#include "node_standby.h"
#include "node_status.h"
#include "node_steps.h"
#include "node_timers.h"

#include <stddef.h>

/* Called in this order. The steps of a generation are reported before standbys are released; they
 * belong to its end. */
static const struct node_feature *const features[] = {
    &node_errors_feature, &node_hang_feature,    &node_dump_feature,     &node_leave_feature,
    &node_steps_feature,  &node_goodput_feature, &node_standby_feature,  &node_stacks_feature,
    &node_pmi_feature,    &node_status_feature,  &node_console_feature,  &node_http_feature,
    &node_report_feature, &node_timers_feature,  &node_trainjob_feature,
};

enum { N_FEATURES = sizeof features / sizeof *features };

int node_features_open(const struct node_view *n, struct co_error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < N_FEATURES; i++)
        if (features[i]->open != NULL)
            rc = features[i]->open(n, err);
    return rc;
}

void node_features_on_event(const struct node_view *n, const struct supervisor_event *e)
{
    for (size_t i = 0; i < N_FEATURES; i++)
        if (features[i]->on_event != NULL)
            features[i]->on_event(n, e);
}

void node_features_on_step(const struct node_view *n)
{
    for (size_t i = 0; i < N_FEATURES; i++)
        if (features[i]->on_step != NULL)
            features[i]->on_step(n);
}

int node_features_on_generation(const struct node_view *n)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < N_FEATURES; i++)
        if (features[i]->on_generation != NULL)
            rc = features[i]->on_generation(n);
    return rc;
}

void node_features_on_end(const struct node_view *n, bool lives)
{
    for (size_t i = 0; i < N_FEATURES; i++)
        if (features[i]->on_end != NULL)
            features[i]->on_end(n, lives);
}

void node_features_close(const struct node_view *n)
{
    for (size_t i = 0; i < N_FEATURES; i++)
        if (features[i]->close != NULL)
            features[i]->close(n);
}
