#include "paper_roster.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/error.h"
#include "launcher/job/job_spec.h"
#include "rendezvous/channel/channel_wire.h"
#include "rendezvous/membership/member.h"
#include "rendezvous/membership/roster.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_NODES = 5, OWN = 0, MAX_MAILS = 1024 };

enum mail_type { MAIL_TO_NODE, MAIL_TO_ROSTER, MAIL_UP, MAIL_GONE };

struct mail {
    enum mail_type type;
    int node;
    uint64_t link;
    struct co_buf frame; /* owned */
};

struct node {
    struct member *member; /* NULL: the process's own */
    uint64_t link;         /* 0: none */
    char name[16];
};

struct paper {
    uv_loop_t *loop;
    struct roster_link_callbacks notes;
    struct message_terms terms;
    char run_id[64];
    struct roster *roster;
    struct node nodes[MAX_NODES];
    uint64_t n_links;
    bool is_deaf;
    struct mail mails[MAX_MAILS];
    int first, n;
    struct channel_wire_scratch scratch;
    uv_timer_t mail_timer, timer;
    uv_poll_t command_poll;
    int command_fd;
    char line[256];
    size_t line_len;
    int n_handles;
};

/* --- Mail --- */

static void on_mail_timer(uv_timer_t *timer);

static void put(struct paper *p, enum mail_type type, int node, const struct message *m)
{
    assert(p->n < MAX_MAILS);
    if (node == OWN && p->is_deaf)
        return;
    struct mail *mail = &p->mails[(p->first + p->n++) % MAX_MAILS];
    *mail = (struct mail){.type = type, .node = node, .link = p->nodes[node].link};
    int rc = m != NULL ? channel_wire_encode(m, &mail->frame, NULL) : 0;
    assert(rc == 0);
    (void)rc;
    uv_timer_start(&p->mail_timer, on_mail_timer, 0, 0);
}

static void step_roster(struct paper *p, struct roster_input in)
{
    struct roster_actions actions;
    in.now_ms = co_now_ms();
    roster_step(p->roster, &in, &actions);
    for (size_t i = 0; i < actions.n; i++)
        for (int node = 0; node < MAX_NODES; node++)
            if (actions.items[i].type == ROSTER_SEND && p->nodes[node].link != 0 &&
                p->nodes[node].link == actions.items[i].link)
                put(p, MAIL_TO_NODE, node, &actions.items[i].message);
}

/* --- Nodes on paper --- */

static void step_node(struct paper *p, int node, struct member_input in);

static void follow(struct paper *p, int node, const struct member_orders *orders)
{
    struct node *n = &p->nodes[node];
    const struct member_orders o = *orders;
    for (size_t i = 0; i < o.n_messages; i++)
        if (n->link != 0)
            put(p, MAIL_TO_ROSTER, node, &o.messages[i]);
    if (o.disconnect && n->link != 0) {
        put(p, MAIL_GONE, node, NULL);
        n->link = 0;
    }
    if (o.connect) {
        n->link = ++p->n_links;
        put(p, MAIL_UP, node, NULL);
    }
    if (o.open_store)
        step_node(p, node,
                  (struct member_input){.type = MEMBER_STORE_OPEN, .host = "paper", .port = 1});
    if (o.stop_ranks || o.kill_ranks)
        step_node(p, node, (struct member_input){.type = MEMBER_RANKS_STOPPED});
}

static void step_node(struct paper *p, int node, struct member_input in)
{
    struct member_orders o;
    in.now_ms = co_now_ms();
    member_step(p->nodes[node].member, &in, &o);
    follow(p, node, &o);
}

static void start_node(struct paper *p, const char *name)
{
    int node = OWN + 1;
    while (p->nodes[node].member != NULL)
        node++;
    assert(node < MAX_NODES);
    struct node *n = &p->nodes[node];
    struct message_hello hello = {.instance = {(uint8_t)node},
                                  .run_id = p->run_id,
                                  .name = n->name,
                                  .node_rank = MESSAGE_NO_RANK,
                                  .n_local = 2,
                                  .stop_ms = 1000,
                                  .terms = p->terms};
    struct member_limits limits = {.start_timeout_ms = 60000, .failover_timeout_ms = 60000};
    struct member_orders o;
    snprintf(n->name, sizeof n->name, "%s", name);
    int rc = member_create(&limits, &hello, "paper", &n->member, NULL);
    assert(rc == 0);
    (void)rc;
    member_begin(n->member, co_now_ms(), &o);
    follow(p, node, &o);
}

static void forget(struct paper *p, int node)
{
    member_destroy(p->nodes[node].member);
    p->nodes[node] = (struct node){0};
}

static int find_node(const struct paper *p, const char *name)
{
    for (int i = OWN + 1; i < MAX_NODES; i++)
        if (p->nodes[i].member != NULL && strcmp(p->nodes[i].name, name) == 0)
            return i;
    fprintf(stderr, "paper_roster: there is no node '%s'\n", name);
    abort();
}

/* --- Commands --- */

static void obey(struct paper *p, const char *line)
{
    char what[16] = "", name[16] = "";
    int code = 0;
    sscanf(line, "%15s %15s %d", what, name, &code);
    if (strcmp(what, "start") == 0) {
        start_node(p, name);
    } else if (strcmp(what, "deaf") == 0) {
        p->is_deaf = true;
    } else {
        int node = find_node(p, name);
        if (strcmp(what, "done") == 0)
            step_node(p, node, (struct member_input){.type = MEMBER_RANKS_SUCCEEDED});
        else if (strcmp(what, "fail") == 0)
            step_node(
                p, node,
                (struct member_input){
                    .type = MEMBER_RANK_FAILED,
                    .rank = (int32_t)member_get_place(p->nodes[node].member)->place.first_rank,
                    .exit_code = code,
                    .text = "failed on paper"});
        else if (strcmp(what, "leave") == 0)
            step_node(p, node, (struct member_input){.type = MEMBER_LEAVE, .text = "wants to"});
        else if (strcmp(what, "kill") == 0) {
            put(p, MAIL_GONE, node, NULL);
            forget(p, node);
        }
    }
}

static void set_timer(struct paper *p);

static void on_command(uv_poll_t *poll, int status, int events)
{
    struct paper *p = poll->data;
    char c;
    (void)status;
    (void)events;
    while (read(p->command_fd, &c, 1) == 1) {
        if (c != '\n' && p->line_len + 1 < sizeof p->line) {
            p->line[p->line_len++] = c;
            continue;
        }
        p->line[p->line_len] = '\0';
        p->line_len = 0;
        obey(p, p->line);
    }
    set_timer(p);
}

/* --- Time, and mail that arrives --- */

static void on_timer(uv_timer_t *timer)
{
    struct paper *p = timer->data;
    for (int i = OWN + 1; i < MAX_NODES; i++)
        if (p->nodes[i].member != NULL && member_deadline_ms(p->nodes[i].member) <= co_now_ms())
            step_node(p, i, (struct member_input){.type = MEMBER_TIME});
    if (roster_deadline_ms(p->roster) <= co_now_ms())
        step_roster(p, (struct roster_input){.type = ROSTER_TIME});
    set_timer(p);
}

static void set_timer(struct paper *p)
{
    uint64_t at = roster_deadline_ms(p->roster), now_ms = co_now_ms();
    for (int i = OWN + 1; i < MAX_NODES; i++)
        if (p->nodes[i].member != NULL && member_deadline_ms(p->nodes[i].member) < at)
            at = member_deadline_ms(p->nodes[i].member);
    uv_update_time(p->loop);
    if (at == CO_NEVER_MS)
        uv_timer_stop(&p->timer);
    else
        uv_timer_start(&p->timer, on_timer, at > now_ms ? at - now_ms : 0, 0);
}

static void hear(struct paper *p, const struct mail *mail)
{
    struct message m;
    int rc = channel_wire_decode(co_buf_bytes(&mail->frame), co_buf_len(&mail->frame), &p->scratch,
                                 &m, NULL);
    assert(rc == 0);
    (void)rc;
    if (mail->type == MAIL_TO_ROSTER)
        step_roster(
            p, (struct roster_input){.type = ROSTER_MESSAGE, .link = mail->link, .message = &m});
    else if (p->nodes[mail->node].link != mail->link)
        return;
    else if (mail->node == OWN)
        p->notes.on_message(p->notes.arg, &m);
    else
        step_node(p, mail->node, (struct member_input){.type = MEMBER_MESSAGE, .message = &m});
}

static void deliver(struct paper *p, const struct mail *mail)
{
    bool is_current = p->nodes[mail->node].link == mail->link;
    if (mail->type == MAIL_GONE)
        step_roster(p, (struct roster_input){.type = ROSTER_GONE, .link = mail->link});
    else if (mail->type != MAIL_UP)
        hear(p, mail);
    else if (is_current && mail->node == OWN)
        p->notes.on_up(p->notes.arg, false);
    else if (is_current)
        step_node(p, mail->node, (struct member_input){.type = MEMBER_LINK_UP});
}

static void on_mail_timer(uv_timer_t *timer)
{
    struct paper *p = timer->data;
    while (p->n > 0) {
        struct mail mail = p->mails[p->first];
        p->first = (p->first + 1) % MAX_MAILS;
        p->n--;
        deliver(p, &mail);
        co_buf_fini(&mail.frame);
    }
    set_timer(p);
}

/* --- The link's operations --- */

static int open_link(uv_loop_t *loop, const struct job_spec *spec,
                     const struct roster_link_callbacks *notes, void **ret_link,
                     struct co_error *err)
{
    struct paper *p = calloc(1, sizeof *p);
    const char *lease = getenv("PAPER_LEASE_MS");
    struct roster_limits limits = {0};
    assert(p != NULL);
    p->loop = loop;
    p->notes = *notes;
    snprintf(p->run_id, sizeof p->run_id, "%s", spec->run_id);
    if (lease != NULL) {
        limits.lease_ms = (uint64_t)atoi(lease);
        limits.keep_alive_ms = limits.lease_ms / 5;
    }
    job_spec_terms(spec, &p->terms);
    int rc = roster_create(&limits, &p->terms, NULL, 0, co_now_ms(), &p->roster, err);
    if (rc < 0) {
        free(p);
        return rc;
    }
    uv_timer_init(loop, &p->mail_timer);
    uv_timer_init(loop, &p->timer);
    p->command_fd = open(getenv("PAPER_COMMANDS"), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    assert(p->command_fd >= 0);
    uv_poll_init(loop, &p->command_poll, p->command_fd);
    p->mail_timer.data = p->timer.data = p->command_poll.data = p;
    uv_poll_start(&p->command_poll, UV_READABLE, on_command);
    p->n_handles = 3;
    *ret_link = p;
    return 0;
}

static void connect_link(void *link)
{
    struct paper *p = link;
    p->nodes[OWN].link = ++p->n_links;
    put(p, MAIL_UP, OWN, NULL);
}

static void send_message(void *link, const struct message *m)
{
    struct paper *p = link;
    if (p->nodes[OWN].link != 0)
        put(p, MAIL_TO_ROSTER, OWN, m);
}

static void disconnect_link(void *link)
{
    struct paper *p = link;
    if (p->nodes[OWN].link != 0)
        put(p, MAIL_GONE, OWN, NULL);
    p->nodes[OWN].link = 0;
}

static int own_address(const void *link, char *text, size_t n)
{
    (void)link;
    snprintf(text, n, "127.0.0.1");
    return 0;
}

static bool lend_port(void *link, uint16_t port)
{
    (void)link, (void)port;
    return false; /* it has none */
}

static void adopt(void *link, int fd, const uint8_t *bytes, size_t len)
{
    (void)link, (void)bytes, (void)len;
    close(fd);
}

static int take_port(void *link, struct co_error *err)
{
    (void)link, (void)err;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct paper *p = handle->data;
    if (--p->n_handles > 0)
        return;
    for (; p->n > 0; p->n--)
        co_buf_fini(&p->mails[p->first++ % MAX_MAILS].frame);
    for (int i = OWN + 1; i < MAX_NODES; i++)
        forget(p, i);
    roster_destroy(p->roster);
    close(p->command_fd);
    free(p);
}

static void close_link(void *link)
{
    struct paper *p = link;
    uv_close((uv_handle_t *)&p->mail_timer, on_closed);
    uv_close((uv_handle_t *)&p->timer, on_closed);
    uv_close((uv_handle_t *)&p->command_poll, on_closed);
}

const struct roster_link_ops paper_roster_link = {
    .open = open_link,
    .connect = connect_link,
    .send = send_message,
    .disconnect = disconnect_link,
    .own_address = own_address,
    .lend_port = lend_port,
    .adopt = adopt,
    .take_port = take_port,
    .close = close_link,
};
