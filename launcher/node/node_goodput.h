/* node_goodput.h - the seconds of the job by what they were spent on, as this node sees it:
 * goodput.h decides, this file feeds it with what happens to the ranks, and with the steps that
 * they report. All nodes of a job start and stop their ranks together, so the seconds of one node
 * are those of the job since that node joined. */
#ifndef DDP_LAUNCHER_NODE_NODE_GOODPUT_H
#define DDP_LAUNCHER_NODE_NODE_GOODPUT_H

#include "node_view.h"

#include "launcher/supervisor/goodput.h"

struct member;

extern const struct node_feature node_goodput_feature;

/* A rank hangs; nothing has moved since then. */
void node_goodput_note_hang(const struct node_view *n, uint64_t since_ms);

/* The ranks were asked to save their state. */
void node_goodput_note_save(const struct node_view *n);

/* The member of a job of several nodes has made a step. */
void node_goodput_note_member(const struct node_view *n, const struct member *member);

/* The seconds until now_ms, which is not before the last event. */
struct goodput_sums node_goodput_read(const struct node_view *n, uint64_t now_ms);

#endif
