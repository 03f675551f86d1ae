/* job_link.h - ddpctl's end of a job's socket: a request goes, its answer comes. */
#ifndef DDP_CTL_JOB_LINK_H
#define DDP_CTL_JOB_LINK_H

#include <jansson.h>
#include <stdint.h>

struct co_error;
struct job_request;

/* Say it; the answer is awaited by job_link_hear(), so that many can be asked at once.
 *
 * fd        of job_folder_connect(), borrowed
 * returns   0, -EPIPE (nobody is there any more), -EAGAIN */
int job_link_say(int fd, const struct job_request *r, struct co_error *err);

/* Read one answer.
 *
 * ret_answer   an object, json_decref() it
 * returns      0
 *              -EBADE      ddprun says that it cannot be done; the text is its own
 *              -ETIMEDOUT  nothing came by deadline_ms (common/clock.h)
 *              -EPIPE      the connection ended before
 *              -EPROTO     what came is no answer, or longer than any
 *              -ENOMEM */
int job_link_hear(int fd, uint64_t deadline_ms, json_t **ret_answer, struct co_error *err);

/* Both. */
int job_link_ask(int fd, const struct job_request *r, uint64_t deadline_ms, json_t **ret_answer,
                 struct co_error *err);

#endif
