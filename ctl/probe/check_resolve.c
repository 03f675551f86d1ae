#include "check_resolve.h"

#include "common/clock.h"
#include "rendezvous/net/address.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* --- addresses --- */

static bool is_link_local(const struct sockaddr_storage *a)
{
    struct in6_addr v6 = address_as_v6(a);
    if (IN6_IS_ADDR_V4MAPPED(&v6))
        return v6.s6_addr[12] == 169 && v6.s6_addr[13] == 254;
    return IN6_IS_ADDR_LINKLOCAL(&v6);
}

static bool take_address(const struct ifaddrs *i, struct sockaddr_storage *ret)
{
    if (i->ifa_addr == NULL || (i->ifa_flags & IFF_UP) == 0 ||
        (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
        return false;
    memcpy(ret, i->ifa_addr,
           i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                             : sizeof(struct sockaddr_in6));
    return true;
}

/* Those by which others may reach it. */
static void fill_addresses(const struct ifaddrs *all, struct check_facts *f)
{
    for (const struct ifaddrs *i = all; i != NULL && f->n_addresses < CHECK_ADDRESSES_MAX;
         i = i->ifa_next) {
        struct sockaddr_storage address;
        struct check_address *a = &f->addresses[f->n_addresses];
        if (!take_address(i, &address) || address_is_loopback(&address) ||
            is_link_local(&address) || address_print_host(&address, a->text, sizeof a->text) < 0)
            continue;
        snprintf(a->interface, sizeof a->interface, "%s", i->ifa_name);
        f->n_addresses++;
    }
}

static bool is_own(const struct ifaddrs *all, const struct sockaddr *address)
{
    struct sockaddr_storage given = {0}, own;
    memcpy(&given, address,
           address->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                         : sizeof(struct sockaddr_in6));
    struct in6_addr wanted = address_as_v6(&given);
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        if (!take_address(i, &own))
            continue;
        struct in6_addr v6 = address_as_v6(&own);
        if (memcmp(&v6, &wanted, sizeof v6) == 0)
            return true;
    }
    return address_is_loopback(&given); /* all of 127.0.0.0/8 is, whatever is configured */
}

/* --- looking up --- */

struct leads {
    enum check_name forward, reverse;
    char forward_to[CHECK_TEXT_BYTES], reverse_to[CHECK_TEXT_BYTES];
};

struct question { /* shared with a thread that may outlive the call */
    pthread_mutex_t mutex;
    pthread_cond_t answered;
    bool is_answered, is_left;
    char host[CHECK_NAME_BYTES], at[INET6_ADDRSTRLEN];
    struct leads leads;
};

static void add_word(char *to, size_t n, const char *word)
{
    size_t len = strlen(to);
    snprintf(to + len, n - len, "%s%s", len > 0 ? " " : "", word);
}

/* Where a name leads to; addresses that are not this machine's are what counts, if there is one. */
static enum check_name look_up(const struct ifaddrs *all, const char *name, char *to, size_t n)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    enum check_name answer = CHECK_NAME_LOOPBACK;
    int rc = getaddrinfo(name, NULL, &hints, &found);
    to[0] = '\0';
    if (rc != 0) {
        snprintf(to, n, "%s", gai_strerror(rc));
        return rc == EAI_AGAIN ? CHECK_NAME_LATE : CHECK_NAME_NONE;
    }
    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next) {
        char text[INET6_ADDRSTRLEN] = "?";
        struct sockaddr_storage address = {0};
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6)
            continue;
        memcpy(&address, a->ai_addr, a->ai_addrlen);
        address_print_host(&address, text, sizeof text);
        add_word(to, n, text);
        if (!is_own(all, a->ai_addr))
            answer = CHECK_NAME_FOREIGN;
        else if (answer != CHECK_NAME_FOREIGN && !address_is_loopback(&address))
            answer = CHECK_NAME_OWN;
    }
    freeaddrinfo(found);
    return answer;
}

/* The address's name, and whether that leads back. */
static enum check_name look_back(const struct ifaddrs *all, const char *at, char *to, size_t n)
{
    struct sockaddr_storage address;
    char name[CHECK_NAME_BYTES], ignored[CHECK_TEXT_BYTES];
    if (*at == '\0' || address_parse(at, 0, &address) < 0)
        return CHECK_NAME_SKIPPED;
    socklen_t len =
        address.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    int rc = getnameinfo((const struct sockaddr *)&address, len, name, sizeof name, NULL, 0,
                         NI_NAMEREQD);
    snprintf(to, n, "%s", rc == 0 ? name : gai_strerror(rc));
    if (rc != 0)
        return rc == EAI_AGAIN ? CHECK_NAME_LATE : CHECK_NAME_NONE;
    enum check_name answer = look_up(all, name, ignored, sizeof ignored);
    return answer == CHECK_NAME_LOOPBACK ? CHECK_NAME_OWN : answer;
}

static void free_question(struct question *q)
{
    pthread_mutex_destroy(&q->mutex);
    pthread_cond_destroy(&q->answered);
    free(q);
}

static void *run_question(void *arg)
{
    struct question *q = arg;
    struct ifaddrs *all = NULL;
    struct leads answer = {.forward = CHECK_NAME_SKIPPED};
    if (getifaddrs(&all) < 0)
        all = NULL;
    if (q->host[0] != '\0')
        answer.forward = look_up(all, q->host, answer.forward_to, sizeof answer.forward_to);
    answer.reverse = look_back(all, q->at, answer.reverse_to, sizeof answer.reverse_to);
    if (all != NULL)
        freeifaddrs(all);
    pthread_mutex_lock(&q->mutex);
    q->leads = answer;
    q->is_answered = true;
    bool is_left = q->is_left;
    pthread_cond_signal(&q->answered);
    pthread_mutex_unlock(&q->mutex);
    if (is_left)
        free_question(q);
    return NULL;
}

static struct question *make_question(const struct check_facts *f, const char *at)
{
    struct question *q = calloc(1, sizeof *q);
    if (q == NULL)
        return NULL;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->answered, NULL);
    q->leads = (struct leads){.forward = CHECK_NAME_LATE,
                              .reverse = CHECK_NAME_LATE,
                              .forward_to = "timed out",
                              .reverse_to = "timed out"};
    snprintf(q->host, sizeof q->host, "%s", f->host);
    snprintf(q->at, sizeof q->at, "%s", at);
    return q;
}

/* returns false: it could not even be asked */
static bool question_ask(struct question *q)
{
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int rc = pthread_create(&thread, &attr, run_question, q);
    pthread_attr_destroy(&attr);
    return rc == 0;
}

/* The last thread that uses the question frees it. */
static void await_answer(struct question *q, uint64_t timeout_ms, struct check_facts *f)
{
    uint64_t end_ns = co_now_ns() + timeout_ms * 1000000;
    const struct timespec end = {.tv_sec = (time_t)(end_ns / 1000000000),
                                 .tv_nsec = (long)(end_ns % 1000000000)};
    int rc = 0;
    pthread_mutex_lock(&q->mutex);
    while (!q->is_answered && rc != ETIMEDOUT)
        rc = pthread_cond_clockwait(&q->answered, &q->mutex, CLOCK_MONOTONIC, &end);
    f->forward = q->leads.forward;
    f->reverse = q->leads.reverse;
    memcpy(f->forward_to, q->leads.forward_to, sizeof f->forward_to);
    memcpy(f->reverse_to, q->leads.reverse_to, sizeof f->reverse_to);
    bool is_ours = q->is_answered;
    q->is_left = !is_ours;
    pthread_mutex_unlock(&q->mutex);
    if (is_ours)
        free_question(q);
}

void check_resolve_find(const char *at, uint64_t timeout_ms, struct check_facts *facts)
{
    struct ifaddrs *all = NULL;
    if (gethostname(facts->host, sizeof facts->host) < 0)
        facts->host[0] = '\0';
    facts->host[sizeof facts->host - 1] = '\0';
    facts->n_addresses = 0;
    if (getifaddrs(&all) == 0) {
        fill_addresses(all, facts);
        freeifaddrs(all);
    }
    facts->forward = facts->reverse = CHECK_NAME_SKIPPED;
    if (*at == '\0' && facts->n_addresses > 0)
        at = facts->addresses[0].text;
    struct question *q = make_question(facts, at);
    if (q != NULL && question_ask(q))
        await_answer(q, timeout_ms, facts);
    else if (q != NULL)
        free_question(q);
}
