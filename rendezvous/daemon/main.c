/* ddp-rendezvous: words -> daemon_spec -> daemon_run() -> exit status. */
#include "common/error.h"
#include "daemon.h"
#include "daemon_cli.h"

#include <stdio.h>

#ifndef DDPRUN_VERSION
#error "the build gives the version"
#endif

/* In one write, so that lines of several programs do not mix. */
static void tell(const char *line)
{
    char text[2048];
    snprintf(text, sizeof text, "ddp-rendezvous: %s\n", line);
    fputs(text, stderr);
}

int main(int argc, char **argv)
{
    struct daemon_spec spec;
    struct co_error err = {0};
    enum daemon_wish wish;
    if (daemon_cli_parse(argc, argv, &wish, &spec, &err) < 0) {
        tell(err.text);
        return DAEMON_EXIT_USAGE;
    }
    if (wish == DAEMON_HELP)
        daemon_cli_print_help(stdout);
    else if (wish == DAEMON_VERSION)
        printf("ddp-rendezvous %s\n", DDPRUN_VERSION);
    else
        return daemon_run(&spec, DDPRUN_VERSION, tell);
    return fflush(stdout) == 0 ? DAEMON_EXIT_OK : DAEMON_EXIT_INTERNAL;
}
