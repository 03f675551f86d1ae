/* scope.h - clean-up that hangs on the variable, so that a function may return anywhere.
 *
 *     co_autofree char *text = read_all(path);
 *     co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
 *     ...
 *     *ret_text = co_take(&text);     hand it over: the variable is NULL afterwards */
#ifndef DDP_COMMON_SCOPE_H
#define DDP_COMMON_SCOPE_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void co_free_at(void *p)
{
    free(*(void **)p);
}

static inline void co_fclose_at(FILE **f)
{
    if (*f != NULL)
        fclose(*f);
}

static inline void co_closedir_at(DIR **d)
{
    if (*d != NULL)
        closedir(*d);
}

static inline void co_close_at(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

#define co_autofree      __attribute__((cleanup(co_free_at)))
#define co_autoclose     __attribute__((cleanup(co_fclose_at)))
#define co_autoclose_fd  __attribute__((cleanup(co_close_at)))
#define co_autoclose_dir __attribute__((cleanup(co_closedir_at)))

/* Define `TYPE_auto` helpers: co_define_auto(hostfile, hostfile_destroy) gives
 * co_auto(hostfile). */
#define co_define_auto(type, destroy)                                                              \
    static inline void type##_at_scope_end(struct type **p)                                        \
    {                                                                                              \
        destroy(*p);                                                                               \
    }
#define co_auto(type) __attribute__((cleanup(type##_at_scope_end))) struct type *

/* The pointer at `where`, which becomes NULL. */
#define co_take(where)                                                                             \
    __extension__({                                                                                \
        __typeof__(where) co_where_ = (where);                                                     \
        __typeof__(*co_where_) co_taken_ = *co_where_;                                             \
        *co_where_ = NULL;                                                                         \
        co_taken_;                                                                                 \
    })

/* Close the descriptor at `fd`, which becomes -1. */
static inline void co_close_fd(int *fd)
{
    co_close_at(fd);
    *fd = -1;
}

/* The descriptor at `where`, which becomes -1. */
static inline int co_take_fd(int *where)
{
    int fd = *where;
    *where = -1;
    return fd;
}

#endif
