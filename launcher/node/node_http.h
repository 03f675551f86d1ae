/* node_http.h - --http: pages about this node and its job while it runs.
 *
 *     /healthz   200: this ddprun runs
 *     /readyz    200: all ranks of this node run; else 503
 *     /metrics   for Prometheus (metrics.h)
 *     /status    JSON (status_json.h)
 *     /          for a browser: that of ddpctl report, with what the ranks do now
 *
 * The first node of several shows the ranks of all of them (node_status.h).
 *
 * Nothing here changes a job. /healthz and /readyz are for all that may connect, the rest also
 * needs what the pages of a rendezvous server need (server.h): a process of the same user on this
 * machine, or the page key where the job has a token. Without that key the client must also call
 * this node by an address, by its own name, or by one of --http-host: so no page of another site
 * reads it through a browser (DNS rebinding). */
#ifndef DDP_LAUNCHER_NODE_NODE_HTTP_H
#define DDP_LAUNCHER_NODE_NODE_HTTP_H

#include "node_view.h"

extern const struct node_feature node_http_feature;

#endif
