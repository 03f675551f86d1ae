/* How long a job has no coordinator after the present one was killed: the councils of the others on
 * virtual time, in tenths of a ms. Each of them notices the end at a time of its own, has a clock
 * with a phase of its own, and gets ballots some tenths after they were sent. */
#include "quorum_cases.h"

#include "rendezvous/quorum/council.h"

#include "common/clock.h"
#include "tests/support/chance.h"

#include <check.h>
#include <string.h>

enum {
    MAX_N = QUORUM_MAX_VOTERS,
    MAX_MAILS = 256,
    MS = 10,         /* tenths */
    BEGIN_MS = 1000, /* by the clocks of all */
    END = 3000 * MS,
    MOST_MS = 300,
    RUNS = 5000,
};

struct mail {
    uint32_t at, to, from;
    struct ballot ballot;
};

/* Process 0 is the coordinator that was killed; the others follow it in the list of voters. */
struct trial {
    uint32_t n;
    bool descends; /* the ids, from which terms follow */
    uint32_t latency;
    uint32_t phase[MAX_N];
    uint32_t notices_at[MAX_N];
};

static const struct trial *trial;
static struct council councils[MAX_N];
static bool has_noticed[MAX_N];
static struct mail mails[MAX_MAILS];
static uint32_t n_mails, now, n_leaders;

static uint64_t id_of(uint32_t i)
{
    return trial->descends ? MAX_N - i : i + 1;
}

static struct elector_address address_of(uint32_t i)
{
    return (struct elector_address){.host = "node", .port = (uint16_t)(i + 1)};
}

static uint64_t clock_ms(uint32_t i)
{
    return BEGIN_MS + (now + trial->phase[i]) / MS;
}

static void post(uint32_t from, uint32_t to, const struct ballot *b)
{
    ck_assert_uint_lt(n_mails, MAX_MAILS);
    if (to > 0)
        mails[n_mails++] =
            (struct mail){.at = now + trial->latency, .to = to, .from = from, .ballot = *b};
}

static void obey(uint32_t i, const struct council_orders *o)
{
    struct ballot_voter to[QUORUM_MAX_ASKED];
    struct ballot b;
    n_leaders += o->make;
    council_question(&councils[i], &b);
    const uint32_t n = council_asked(&councils[i], to);
    for (uint32_t k = 0; o->ask && k < n; k++)
        post(i, to[k].at.port - 1U, &b);
}

static void deliver(const struct mail *m)
{
    struct council_orders orders;
    struct ballot answer;
    council_take(&councils[m->to], &m->ballot, clock_ms(m->to), &answer, &orders);
    if (m->ballot.type != BALLOT_VOTE)
        post(m->to, m->from, &answer);
    obey(m->to, &orders);
}

static void deliver_all(void)
{
    for (uint32_t i = 0; i < n_mails;) {
        static struct mail due;
        if (mails[i].at > now) {
            i++;
            continue;
        }
        due = mails[i];
        n_mails--;
        memmove(&mails[i], &mails[i + 1], (n_mails - i) * sizeof *mails);
        deliver(&due);
    }
}

/* All vote, and obey the coordinator, which has just been heard. */
static void begin(void)
{
    static struct ballot write;
    struct quorum_record *r = &write.entry.record;
    write = (struct ballot){
        .type = BALLOT_WRITE, .job = 7, .from = id_of(0), .term = {1, id_of(0)}, .has_entry = true};
    *r = (struct quorum_record){.term = write.term, .settled = true, .voters.n = trial->n};
    write.entry.n = trial->n;
    for (uint32_t i = 0; i < trial->n; i++) {
        r->voters.ids[i] = id_of(i);
        write.entry.voters[i] = (struct ballot_voter){.id = id_of(i), .at = address_of(i)};
    }
    r->before = r->voters;
    for (uint32_t i = 1; i < trial->n; i++) {
        const struct elector_address at = address_of(i);
        struct council_orders orders;
        struct ballot answer;
        council_init(&councils[i], &council_usual_limits, id_of(i), &at, true);
        council_take(&councils[i], &write, clock_ms(i), &answer, &orders);
        ck_assert(answer.yes);
    }
}

static void live_on(uint32_t i)
{
    const struct elector_address ended = address_of(0);
    struct council_orders orders;
    if (!has_noticed[i] && now >= trial->notices_at[i]) {
        has_noticed[i] = true;
        council_note_ended(&councils[i], &ended, clock_ms(i), &orders);
        obey(i, &orders);
    }
    if (clock_ms(i) >= council_deadline_ms(&councils[i])) {
        council_time(&councils[i], clock_ms(i), &orders);
        obey(i, &orders);
    }
}

/* -> tenths of a ms after the coordinator's end */
static uint32_t run(const struct trial *t)
{
    trial = t;
    n_mails = now = n_leaders = 0;
    memset(has_noticed, 0, sizeof has_noticed);
    begin();
    for (; now < END && n_leaders == 0; now++) {
        deliver_all();
        for (uint32_t i = 1; i < t->n; i++)
            live_on(i);
    }
    return now;
}

/* From the last of the times at which the others notice it. */
static void check(const struct trial *t)
{
    uint32_t last = 0;
    for (uint32_t i = 1; i < t->n; i++)
        if (t->notices_at[i] > last)
            last = t->notices_at[i];
    const uint32_t took = run(t);
    ck_assert_msg(took <= last + MOST_MS * MS,
                  "%u voters, ids %s, latency %u, phase %u, noticed at %u %u %u %u: no coordinator "
                  "until %u",
                  t->n, t->descends ? "descend" : "ascend", t->latency, t->phase[2],
                  t->notices_at[1], t->notices_at[2], t->notices_at[3], t->notices_at[4], took);
}

static const uint32_t latencies[] = {1, 4, 12};
static const uint32_t times[] = {0, 1, 3, 6, 10, 15, 50, 985, 994, 999, 1000, 1001, 1006, 1015};

#define N_OF(a) ((uint32_t)(sizeof(a) / sizeof *(a)))

START_TEST(two_candidates_that_claim_at_one_time_do_not_wait_for_each_other)
{
    for (uint32_t l = 0; l < N_OF(latencies); l++)
        for (uint32_t a = 0; a < N_OF(times); a++)
            for (uint32_t b = 0; b < N_OF(times); b++)
                for (uint32_t phase = 0; phase < MS; phase += 3) {
                    struct trial t = {.n = 3,
                                      .descends = _i > 0,
                                      .latency = latencies[l],
                                      .phase = {0, 0, phase},
                                      .notices_at = {0, times[a], times[b]}};
                    check(&t);
                }
}
END_TEST

START_TEST(nor_do_more_of_them)
{
    struct chance chance = chance_from(_i + 1);
    for (int i = 0; i < RUNS; i++) {
        struct trial t = {.n = 4 + (uint32_t)chance_draw(&chance, MAX_N - 3),
                          .descends = chance_draw(&chance, 2) == 0,
                          .latency = latencies[chance_draw(&chance, N_OF(latencies))]};
        for (uint32_t k = 1; k < MAX_N; k++) {
            t.phase[k] = (uint32_t)chance_draw(&chance, MS);
            t.notices_at[k] = times[chance_draw(&chance, N_OF(times))];
        }
        check(&t);
    }
}
END_TEST

TCase *council_takeover_cases(void)
{
    TCase *t = tcase_create("takeover");
    tcase_add_loop_test(t, two_candidates_that_claim_at_one_time_do_not_wait_for_each_other, 0, 2);
    tcase_add_loop_test(t, nor_do_more_of_them, 0, 2);
    return t;
}
