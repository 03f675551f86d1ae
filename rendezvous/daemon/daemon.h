/* daemon.h - ddp-rendezvous at work: a store's server, the jobs behind the same port, their
 * addresses, and signals.
 *
 * Stays in the foreground, needs no folder and no privilege, and leaves nothing behind. */
#ifndef DDP_RENDEZVOUS_DAEMON_DAEMON_H
#define DDP_RENDEZVOUS_DAEMON_DAEMON_H

struct daemon_spec;

enum daemon_exit {
    DAEMON_EXIT_OK = 0,
    DAEMON_EXIT_USAGE = 2,
    DAEMON_EXIT_UNAVAILABLE = 69,   /* an address cannot be had */
    DAEMON_EXIT_INTERNAL = 70,      /* no memory, no descriptors */
    DAEMON_EXIT_CANNOT_CREATE = 73, /* the port file */
    DAEMON_EXIT_NO_ACCESS = 77,     /* no token, or one that is not to be trusted */
};

/* Serve until SIGTERM, SIGINT or SIGHUP.
 *
 * version   of the program; static text
 * tell      called with each line for the user, without a newline
 * returns   the exit status */
enum daemon_exit daemon_run(const struct daemon_spec *spec, const char *version,
                            void (*tell)(const char *line));

#endif
