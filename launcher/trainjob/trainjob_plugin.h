/* trainjob_plugin.h - the interface between ddprun and ddprun-trainjob.so: a POST by libcurl. A
 * plug-in, since libcurl takes longer to load than ddprun takes to start. */
#ifndef DDP_LAUNCHER_TRAINJOB_TRAINJOB_PLUGIN_H
#define DDP_LAUNCHER_TRAINJOB_TRAINJOB_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#define TRAINJOB_PLUGIN_VERSION 1
#define TRAINJOB_PLUGIN_SYMBOL  "ddprun_trainjob_plugin" /* a struct trainjob_plugin */

enum { TRAINJOB_WHY_BYTES = 256 };

/* Texts are borrowed for the call. */
struct trainjob_request {
    const char *url;     /* https: nothing else is accepted */
    const char *ca_cert; /* the file of the authority that signed the server's certificate */
    const char *token;
    const char *body;
    size_t len;
    uint64_t timeout_ms; /* for all of it */
};

struct trainjob_plugin {
    uint32_t version;

    /* Once, from the first thread. returns 0, -ENOMEM */
    int (*init)(void);

    /* Blocks until there is an answer, or the time is over; on any thread, one call at a time. No
     * proxy, no redirection; of the answer at most 64 KB are read, and thrown away.
     *
     * why       the reason, where 0 is returned
     * returns   the status of HTTP; 0: there was no answer */
    int (*post)(const struct trainjob_request *r, char why[TRAINJOB_WHY_BYTES]);
};

#endif
