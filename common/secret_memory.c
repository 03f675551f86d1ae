#include "secret_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *co_secret_alloc(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, n, MADV_DONTDUMP); /* a kernel that refuses these: as any other memory */
    madvise(p, n, MADV_WIPEONFORK);
    return p;
}

void co_secret_free(void *p, size_t n)
{
    if (p == NULL)
        return;
    explicit_bzero(p, n);
    munmap(p, n);
}

/* --- the environment --- */

static struct {
    char *value; /* owned; NULL: none */
    size_t bytes;
} taken;

void co_secret_env_drop(void)
{
    co_secret_free(taken.value, taken.bytes);
    taken.value = NULL;
}

const char *co_secret_env_get(void)
{
    return taken.value;
}

int co_secret_env_put(const char *value)
{
    if (taken.value != NULL || value[0] == '\0')
        return 0;
    taken.bytes = strlen(value) + 1;
    taken.value = co_secret_alloc(taken.bytes);
    if (taken.value == NULL)
        return -ENOMEM;
    memcpy(taken.value, value, taken.bytes);
    return 0;
}

/* The environment may hold a name twice; getenv() finds the first, and /proc shows both. */
int co_secret_env_take(const char *name)
{
    const size_t len = strlen(name);
    const char *value = getenv(name);
    int rc = 0;
    if (value == NULL)
        return 0;
    co_secret_env_drop();
    rc = co_secret_env_put(value);
    for (char **v = environ; *v != NULL; v++)
        if (strncmp(*v, name, len) == 0 && (*v)[len] == '=')
            explicit_bzero(*v + len + 1, strlen(*v + len + 1));
    unsetenv(name);
    return rc;
}
