/* quorum.h - which voters have to agree on a decision: lists of voters, terms, records.
 *
 * A record names the voters that decide what follows it. A set of voters *carries* a list if more
 * than half of the list is in the set, or exactly half of it and the first of the list: any two
 * sets that carry one list have a voter in common. A decision counts when those that have stored
 * its record carry the record's list and, where that list differs from the one before and the
 * change is not settled, the one before as well.
 *
 * docs/design/quorum.md has the rules and why; voter.h stores and promises, proposer.h asks. */
#ifndef DDP_RENDEZVOUS_QUORUM_QUORUM_H
#define DDP_RENDEZVOUS_QUORUM_QUORUM_H

#include <stdbool.h>
#include <stdint.h>

enum {
    QUORUM_MAX_VOTERS = 5, /* five bear the loss of two at once */
    QUORUM_MAX_ASKED = 2 * QUORUM_MAX_VOTERS,
};

/* An id is of one run of a process: one that was restarted is another voter. */
struct quorum_list {
    uint32_t n;                      /* 1 .. QUORUM_MAX_VOTERS in a record */
    uint64_t ids[QUORUM_MAX_VOTERS]; /* no id twice; the first breaks ties */
};

/* Voters that have answered, each once. */
struct quorum_set {
    uint32_t n;
    uint64_t ids[QUORUM_MAX_ASKED];
};

/* Two candidates may choose one number: that with the higher id has the higher term. */
struct quorum_term {
    uint64_t number; /* 0: none */
    uint64_t owner;
};

struct quorum_record {
    struct quorum_term term;
    uint64_t index;            /* of the write, within the term */
    bool settled;              /* the change of voters is over: `before` is not asked any more */
    struct quorum_list voters; /* n 0: there is no record */
    struct quorum_list before;
    uint64_t value; /* what was decided. Here only a number: the caller keeps what it stands for */
};

bool quorum_list_has(const struct quorum_list *l, uint64_t id);
bool quorum_list_is_same(const struct quorum_list *a, const struct quorum_list *b);

/* Adds the id, unless it is there; one too many is not added. */
void quorum_set_add(struct quorum_set *s, uint64_t id);
bool quorum_set_has(const struct quorum_set *s, uint64_t id);

bool quorum_carries(const struct quorum_set *s, const struct quorum_list *l);

/* Do they carry what this record requires? */
bool quorum_carries_record(const struct quorum_set *s, const struct quorum_record *r);

/* May this voter's answer matter to the record? */
bool quorum_record_names(const struct quorum_record *r, uint64_t id);

/* <0, 0, >0 */
int quorum_term_compare(const struct quorum_term *a, const struct quorum_term *b);
int quorum_record_compare(const struct quorum_record *a, const struct quorum_record *b);

#endif
