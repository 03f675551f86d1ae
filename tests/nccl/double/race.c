#include "race.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct race_access {
    uintptr_t from, to;
    unsigned agent;
    uint32_t time;
    bool writes;
    char name[RACE_NAME_BYTES];
};

void race_fini(struct race *r)
{
    free(r->access);
    memset(r, 0, sizeof *r);
}

void race_see(struct race *r, unsigned agent, const struct race_clock *seen)
{
    struct race_clock *own = &r->agent[agent];
    for (unsigned a = 0; a < RACE_AGENTS; a++)
        own->of[a] = seen->of[a] > own->of[a] ? seen->of[a] : own->of[a];
}

void race_begin(struct race *r, unsigned agent, unsigned by)
{
    if (by != agent)
        race_see(r, agent, &r->agent[by]);
    r->agent[agent].of[agent]++;
}

/* Whether the agent's operation is ordered after that access. */
static bool is_behind(const struct race *r, unsigned agent, const struct race_access *x)
{
    return r->agent[agent].of[x->agent] >= x->time;
}

static bool find_race(const struct race *r, unsigned agent, const struct race_access *own,
                      char text[RACE_TEXT_BYTES])
{
    for (size_t i = 0; i < r->n; i++) {
        const struct race_access *x = &r->access[i];
        const bool conflicts = x->from < own->to && own->from < x->to && (x->writes || own->writes);
        if (!conflicts || is_behind(r, agent, x))
            continue;
        snprintf(text, RACE_TEXT_BYTES,
                 "race: %s of agent %u %s what %s of agent %u %s, and nothing orders them",
                 own->name, agent, own->writes ? "writes" : "reads", x->name, x->agent,
                 x->writes ? "writes" : "reads");
        return true;
    }
    return false;
}

/* An access that lies wholly within a later write that is ordered after it can race with nothing
 * that the write does not race with. */
static void drop_covered(struct race *r, unsigned agent, const struct race_access *own)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->n; i++) {
        const struct race_access *x = &r->access[i];
        const bool is_covered = x->from >= own->from && x->to <= own->to &&
                                (own->writes || (!x->writes && x->agent == own->agent));
        if (!is_covered || !is_behind(r, agent, x))
            r->access[kept++] = *x;
    }
    r->n = kept;
}

static bool add(struct race *r, const struct race_access *own)
{
    if (r->n == r->cap) {
        const size_t cap = r->cap > 0 ? 2 * r->cap : 64;
        struct race_access *more = realloc(r->access, cap * sizeof *more);
        if (more == NULL)
            return false;
        r->access = more;
        r->cap = cap;
    }
    r->access[r->n++] = *own;
    return true;
}

bool race_touch(struct race *r, unsigned agent, const char *name, const void *at, size_t bytes,
                bool writes, char text[RACE_TEXT_BYTES])
{
    struct race_access own = {.from = (uintptr_t)at,
                              .to = (uintptr_t)at + bytes,
                              .agent = agent,
                              .time = r->agent[agent].of[agent],
                              .writes = writes};
    snprintf(own.name, sizeof own.name, "%s", name);
    if (bytes == 0)
        return true;
    if (find_race(r, agent, &own, text))
        return false;
    drop_covered(r, agent, &own);
    if (add(r, &own))
        return true;
    snprintf(text, RACE_TEXT_BYTES, "no memory to look for races");
    return false;
}

void race_forget(struct race *r, const void *at, size_t bytes)
{
    const uintptr_t from = (uintptr_t)at, to = from + bytes;
    size_t kept = 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->access[i].from >= to || r->access[i].to <= from)
            r->access[kept++] = r->access[i];
    r->n = kept;
}
