/* member_priv.h - the member's inside, for its own files. Each calls only those after it:
 *   member_input.c   inputs, turned into events; the lease
 *   member.c         the table: what an event does in which state; the messages to the roster
 * A simulator that compares whole states may also use it. */
#ifndef DDP_RENDEZVOUS_MEMBERSHIP_MEMBER_PRIV_H
#define DDP_RENDEZVOUS_MEMBERSHIP_MEMBER_PRIV_H

#include "member.h"

/* What this node reported about the generation. It is sent again on a new link. */
enum member_report {
    REPORT_READY,
    REPORT_FAILED,
    REPORT_SUCCEEDED,
    REPORT_SAVED,
    REPORT_RESTART,
    REPORT_STOPPING,
    REPORT_STOPPED,
    REPORT_LEAVE,
    REPORT_END,
    REPORT_N
};

/* A step sends: HELLO or KEEP_ALIVE, reports, and after STOPPED and WELCOME the health. */
enum { MEMBER_MAX_MESSAGES = REPORT_N + 6 };

enum member_health { MEMBER_HEALTH_UNKNOWN, MEMBER_HEALTH_FIT, MEMBER_HEALTH_UNFIT };

struct member {
    struct member_limits limits;
    enum member_state state;

    /* identifies this node; owns the texts */
    struct message_hello hello; /* n_local: for the next generation */
    uint32_t n_ranks;           /* this node's ranks, if none has failed for good */
    char run_id[MESSAGE_RUN_ID_BYTES];
    char name[MESSAGE_NAME_BYTES];
    char domain[MESSAGE_DOMAIN_BYTES];
    char daemon[MESSAGE_HOST_BYTES];
    struct message_address own_addresses[MESSAGE_MAX_ADDRESSES];

    /* the link */
    bool is_connecting;                 /* the caller makes one */
    bool is_linked;                     /* there is one, and the HELLO went out on it */
    bool is_welcome;                    /* and was answered */
    bool was_welcome;                   /* since this node began to join, on whatever link */
    bool is_local;                      /* it does not leave this process */
    uint64_t ask_every_ms, ask_at_ms;   /* local: what is waited for */
    uint64_t connect_at_ms;             /* CO_NEVER_MS: there is a link, or one is being made */
    uint32_t n_attempts;                /* since the last link, or since the start */
    uint64_t late_at_ms;                /* JOINING: give up */
    char link_text[MESSAGE_TEXT_BYTES]; /* why there is no link */
    bool was_refused;                   /* ... because the roster refused this node, for now */
    uint64_t rejected_at_ms;            /* since then, each attempt was rejected; CO_NEVER_MS */
    int rejected_code;                  /* the exit status for that */
    uint64_t heard_ms;                  /* anything of the roster */
    struct lease lease;
    uint64_t spawner_lease_ms; /* the lease end that the spawner received last */
    bool lease_is_off;         /* the job is over: nothing can be sealed any more */
    uint64_t seek_ms;          /* of the limits, if the roster can be replaced; else 0 */
    bool needs_no_lease;       /* no other process can be the coordinator */
    bool owes_leased;          /* a lease that runs was asked for */
    uint64_t suspended_ms;     /* since then the spawner has suspended the ranks; 0: it has not */
    uint64_t vacant_ms;        /* since when no process has the roster; CO_NEVER_MS: a process has
                               it */
    char note[MESSAGE_TEXT_BYTES];

    /* the generation */
    struct member_place place;
    char host[MESSAGE_HOST_BYTES];
    bool took_part;                       /* it had a place once */
    bool holds;                           /* its ranks or its store may be here */
    bool parks;                           /* ranks live on here, in no generation */
    enum member_report reports[REPORT_N]; /* in the order in which they were first sent: a node that
                                             leaves before it receives STOP is the cause, see
                                             roster.c */
    uint32_t n_reports;
    uint32_t stopped; /* of REPORT_STOPPED, REPORT_STOPPING: which generation */
    struct message_failed failed;
    char failed_text[MESSAGE_TEXT_BYTES];
    char stop_text[MESSAGE_TEXT_BYTES];
    enum message_why why;
    enum member_health health; /* what a check since the last generation found */
    char health_text[MESSAGE_HEALTH_BYTES];
    bool kills;                        /* the order to kill the ranks was given */
    bool was_lost;                     /* KILLING: the roster declared this node lost: join again */
    struct message_address *addresses; /* owned */
    uint32_t n_addresses, cap_addresses;

    /* what is waited for */
    uint64_t steps; /* as in STOPPED */
    bool has_progress;
    struct message_progress progress;
    char progress_names[MESSAGE_MAX_NAMES][MESSAGE_NAME_BYTES];

    /* the end */
    bool knows_end;
    struct member_end end;
    char end_node[MESSAGE_NAME_BYTES];
    char end_text[MESSAGE_TEXT_BYTES];

    /* what is lent to the caller */
    struct member_orders orders;
    struct message messages[MEMBER_MAX_MESSAGES + 1]; /* the last one is not sent */
    bool is_over_full; /* a step has sent more than fits: as if the link had broken, it is sent
                          again */
};

/* What the table is asked about. */
struct member_event {
    enum member_event_type type;
    uint64_t now_ms;
    const struct member_input *input; /* NULL: LEASE_EXPIRED, TIMED_OUT */
    const struct message *message;    /* of the input; NULL: none */
};

/* --- member.c --- */

void member_enter_first(struct member *m, uint64_t now_ms);
void member_apply(struct member *m, const struct member_event *e);

void member_connect_soon(struct member *m, uint64_t now_ms); /* after the wait due */
void member_connect(struct member *m);                       /* now */
void member_drop_link(struct member *m);

/* When this node must stop relying on the roster; CO_NEVER_MS: nothing requires it. While a rank
 * may run here: what the spawner received. While none does, it is enough that the roster is not
 * silent. */
uint64_t member_lapse_ms(const struct member *m);

/* When to make another link, since this one has been silent for a lease; CO_NEVER_MS: not */
uint64_t member_deaf_ms(const struct member *m);

/* A message of this step, to be filled in. */
struct message *member_send(struct member *m, enum message_type type, uint32_t generation);
void member_send_hello(struct member *m, uint64_t now_ms);
void member_send_stopped(struct member *m, uint32_t generation); /* and the health, if known */
void member_send_health(struct member *m);

void member_report(struct member *m, enum member_report what); /* now, and again on a new link */
void member_report_again(struct member *m);                    /* all: the link is new */
bool member_has_reported(const struct member *m, enum member_report what);

#endif
