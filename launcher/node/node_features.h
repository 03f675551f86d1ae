/* node_features.h - what a node can do besides running ranks: one call for all of its features. See
 * struct node_feature. */
#ifndef DDP_LAUNCHER_NODE_NODE_FEATURES_H
#define DDP_LAUNCHER_NODE_NODE_FEATURES_H

#include <stdbool.h>

struct co_error;
struct node_view;
struct supervisor_event;

int node_features_open(const struct node_view *n, struct co_error *err);
void node_features_on_event(const struct node_view *n, const struct supervisor_event *e);
void node_features_on_step(const struct node_view *n);
int node_features_on_generation(const struct node_view *n);
void node_features_on_end(const struct node_view *n, bool lives);
void node_features_close(const struct node_view *n); /* also of those that were not opened */

#endif
