/* relay_world.h - clients, relay links and a store on virtual time: what the parts of sim_relay.c
 * share. */
#ifndef DDP_TESTS_SIM_RELAY_WORLD_H
#define DDP_TESTS_SIM_RELAY_WORLD_H

#include "relay_history.h"
#include "schedules.h"

#include "rendezvous/relay/relay_node.h"
#include "rendezvous/relay/relay_store.h"

#include "common/error.h"
#include "tests/support/chance.h"

#include <setjmp.h>

enum {
    MAX_LINKS = 3,
    N_CLIENTS = 8, /* of which half are shared */
    N_NAMES = 3,   /* key, counter, queue */
    N_OWN_NAMES = 4,
    MAX_FRAMES = 4, /* on their way */
    MAX_ASKED = 4,
    MAX_OPERATIONS = 100, /* of a history that can be searched */
    FAULTS_END_MS = 600,
    END_MS = 100000,
    QUIET_MS = 50,
    MAX_BUFFER_BYTES = 8 << 20,
};

enum mutant {
    MUTANT_NONE,
    MUTANT_STALE_GET,  /* a node answers GET with what it has seen before */
    MUTANT_REORDER,    /* a DATA for a client is delivered after its next one */
    MUTANT_SWAP,       /* replies go to another client */
    MUTANT_TWICE,      /* requests are delivered twice */
    MUTANT_LOSE_CLOSE, /* the store is not informed that a client has left */
    MUTANT_NO_ASK,     /* the store decides by itself that an old client is silent */
    N_MUTANTS,
};

enum dialect { DIALECT_C, DIALECT_B, DIALECT_A };

struct frame {
    struct relay_frame bytes;
    uint64_t at_ms;
};

struct way {
    struct frame frames[MAX_FRAMES];
    int first, n;
    uint64_t last_ms;
};

struct link {
    struct relay_node *node;
    struct relay_store *store;
    struct way up, down; /* to the store, and to the node */
    struct relay_frame held;
    int64_t seen; /* of the shared key; -1: nothing */
};

struct client {
    bool is_shared, is_up, has_left;
    enum dialect dialect;
    int link;
    uint32_t id; /* of this incarnation */
    struct relay_client *relay;
    struct co_buf to_send, received;
    bool waits; /* sends nothing before it has all it is owed */
    uint64_t asked_ms;
    struct session reference; /* private: without a relay */
    int asked[MAX_ASKED];     /* shared: operations that were sent, and have no answer yet */
    int n_asked;
};

struct world {
    uint64_t seed, now_ms, step;
    struct chance chance;
    enum mutant mutant;
    bool is_over; /* no faults, nothing new */
    int n_links;
    uint32_t n_incarnations;
    struct link links[MAX_LINKS];
    struct client clients[N_CLIENTS];
    struct relay_host host;
    struct session_host direct; /* of the references */
    struct history history;
    jmp_buf caught;
};

extern struct totals {
    uint64_t n_operations, n_compared_bytes, n_left, n_links_lost, n_frames, n_late, n_ended,
        n_histories, n_too_long;
} totals;
static inline uint64_t draw(struct world *w, uint64_t below)
{
    return chance_draw(&w->chance, below);
}

static inline void check(struct world *w, bool holds, const char *what)
{
    if (holds)
        return;
    if (w->mutant != MUTANT_NONE)
        longjmp(w->caught, 1);
    fprintf(stderr, "seed %" PRIu64 ", at %" PRIu64 " ms: %s\n", w->seed, w->now_ms, what);
    exit(1);
}

static inline void must(struct world *w, int rc, const struct co_error *err)
{
    check(w, rc == 0, err->text);
}
/* --- relay_asks.c: what clients ask, and what they are answered --- */

void ask_hello(struct client *c, struct co_buf *b);
void ask_shared(struct world *w, struct client *c); /* an operation of the history */
void ask_read_shared(struct world *w, struct client *c);
bool ask_has_answer(enum history_kind kind);
void ask_put_string(struct co_buf *b, const char *s, size_t len);

/* The first n operations of c->asked are done; the last one of them was answered. */
void ask_end_operations(struct world *w, struct client *c, int n, int64_t result);

void ask_private(struct world *w, struct client *c); /* also asks the session without a relay */
void ask_read_private(struct world *w, struct client *c);

/* Answer it without a relay.
 * returns   whether the client may continue; else it is to be dropped */
bool ask_reference(struct client *c, const struct co_buf *b);

/* --- relay_links.c --- */

void link_open(struct world *w, struct link *l);
void link_lose(struct world *w, struct link *l);
void link_run(struct world *w, struct link *l);
void link_answer_early(struct world *w, struct client *c); /* of a relay that caches */

/* --- sim_relay.c --- */

void client_gone(struct client *c); /* its connection is closed */

#endif
