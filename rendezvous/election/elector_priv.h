/* elector_priv.h - the elector's inside, for its own files. Each calls only those after it:
 *   elector_input.c   answers and other inputs, turned into events
 *   elector.c         the table: what an event does in which state
 *   elector_ask.c     requests to etcd */
#ifndef DDP_RENDEZVOUS_ELECTION_ELECTOR_PRIV_H
#define DDP_RENDEZVOUS_ELECTION_ELECTOR_PRIV_H

#include "elector.h"

struct elector {
    struct elector_limits limits;
    enum elector_state state;
    struct elector_address address;
    bool has_address;

    /* what is being asked */
    bool is_out;
    enum elector_request_type out;
    bool out_is_record; /* GRANT, KEEP: of the record's lease */
    uint64_t out_ms;
    uint64_t next_ms; /* nothing is asked before */
    bool hurries;
    char trouble[ELECTOR_TEXT_BYTES];

    /* what etcd has reported of other nodes */
    struct elector_address leader;
    bool has_followed;
    uint64_t vacant_ms; /* since when no node leads; CO_NEVER_MS: a node leads */
    bool has_record;
    struct elector_record record;
    int64_t record_mod_revision;

    /* what is ours */
    int64_t lease; /* 0: none */
    uint32_t ttl_s;
    uint64_t kept_ms; /* when the newest answered GRANT or KEEP was sent */
    int64_t record_lease;
    uint64_t record_kept_ms;
    bool is_ours; /* the leader's key, according to the last answer */
    int64_t create_revision;
    bool has_roster;            /* the caller was ordered to make one, and not to give it up */
    int64_t known_mod_revision; /* of the record that our roster knows; 0: it knows no record */
    bool has_written, commit_waits;
    struct elector_record written; /* the last record of our roster */
    bool leaves_record;            /* RESIGNING: `written` is for the next leader */

    struct elector_orders orders;
};

struct elector_event {
    enum elector_event_type type;
    uint64_t now_ms;
    const struct elector_answer *answer; /* NULL: LAPSED, RESIGN */
};

/* --- elector.c --- */

void elector_apply(struct elector *e, const struct elector_event *ev);

/* --- elector_ask.c --- */

void elector_ask(struct elector *e, enum elector_request_type type, uint64_t now_ms);
void elector_ask_next(struct elector *e, uint64_t now_ms); /* what the state wants to know */
uint64_t elector_ask_at_ms(const struct elector *e);       /* when, if nothing is out */

/* How long the leader counts on its lease: less than etcd does. */
uint64_t elector_lease_ms(const struct elector *e);
bool elector_is_in_lease(const struct elector *e, uint64_t now_ms);

#endif
