/* cudart_memory.c - devices, memory, copies, and what errors are called. */
#include "cudart.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct block {
    struct block *next;
    char *at;
    size_t bytes;
    int device;
    enum cudaMemoryType type;
};

static struct block *blocks;
static _Thread_local int current_device;
static _Thread_local cudaError_t last_error;

void double_report(const char *format, ...)
{
    const char *path = getenv("NCCL_DOUBLE_REPORT"), *rank = getenv("RANK");
    FILE *f = path != NULL ? fopen(path, "ae") : NULL;
    va_list args;
    va_start(args, format);
    fprintf(f != NULL ? f : stderr, "rank %s (process %d): ", rank != NULL ? rank : "-", getpid());
    vfprintf(f != NULL ? f : stderr, format, args);
    fputc('\n', f != NULL ? f : stderr);
    va_end(args);
    if (f != NULL)
        fclose(f);
}

void double_log(const char *call)
{
    const char *path = getenv("NCCL_DOUBLE_LOG"), *rank = getenv("RANK");
    FILE *f = path != NULL ? fopen(path, "ae") : NULL;
    if (f == NULL)
        return;
    fprintf(f, "%s %s\n", rank != NULL ? rank : "-", call);
    fclose(f);
}

cudaError_t cudart_return(cudaError_t result)
{
    if (result != cudaSuccess)
        last_error = result;
    return result;
}

bool cudart_touch(unsigned agent, const char *name, const struct double_range *range, size_t n)
{
    char text[RACE_TEXT_BYTES];
    for (size_t i = 0; i < n; i++)
        if (!race_touch(&cudart_race, agent, name, range[i].at, range[i].bytes, range[i].writes,
                        text)) {
            double_report("%s", text);
            return false;
        }
    return true;
}

/* --- devices ---------------------------------------------------------------------------------- */

static int count_devices(void)
{
    const char *number = getenv("NCCL_DOUBLE_DEVICES"), *seen = getenv("CUDA_VISIBLE_DEVICES");
    int n = number != NULL ? atoi(number) : 8;
    if (seen == NULL)
        return n;
    n = seen[0] != '\0';
    for (const char *c = seen; *c != '\0'; c++)
        n += *c == ',';
    return n;
}

DOUBLE_EXPORT cudaError_t cudaGetDeviceCount(int *ret)
{
    const char *number = getenv("NCCL_DOUBLE_DEVICES");
    if (number != NULL && strcmp(number, "no driver") == 0)
        return cudart_return(cudaErrorInsufficientDriver);
    *ret = count_devices();
    return cudart_return(*ret > 0 ? cudaSuccess : cudaErrorNoDevice);
}

DOUBLE_EXPORT cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= count_devices())
        return cudart_return(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

DOUBLE_EXPORT cudaError_t cudaGetDevice(int *ret)
{
    *ret = current_device;
    return cudaSuccess;
}

/* --- memory ----------------------------------------------------------------------------------- */

static struct block *find(const void *p)
{
    const char *at = p;
    struct block *b = blocks;
    while (b != NULL && (at < b->at || at >= b->at + b->bytes))
        b = b->next;
    return b;
}

static const size_t device_bytes = (size_t)1 << 36; /* more than this no device has */

static cudaError_t make(void **ret, size_t bytes, enum cudaMemoryType type)
{
    struct block *b = calloc(1, sizeof *b);
    char *at = bytes <= device_bytes ? malloc(bytes > 0 ? bytes : 1) : NULL;
    if (b == NULL || at == NULL) {
        free(b);
        free(at);
        return cudart_return(cudaErrorMemoryAllocation);
    }
    memset(at, 0xa5, bytes); /* no caller may find zeros by luck */
    *b = (struct block){.at = at, .bytes = bytes, .device = current_device, .type = type};
    pthread_mutex_lock(&cudart_mutex);
    b->next = blocks;
    blocks = b;
    pthread_mutex_unlock(&cudart_mutex);
    *ret = at;
    return cudart_return(cudaSuccess);
}

/* With the mutex held. returns NULL if it is not the beginning of a block */
static struct block *unlink_block(const void *p)
{
    for (struct block **at = &blocks; *at != NULL; at = &(*at)->next)
        if ((*at)->at == p) {
            struct block *b = *at;
            *at = b->next;
            race_forget(&cudart_race, b->at, b->bytes);
            return b;
        }
    double_report("%p is freed, and was not allocated", p);
    return NULL;
}

unsigned double_count_blocks(void)
{
    unsigned n = 0;
    pthread_mutex_lock(&cudart_mutex);
    for (const struct block *b = blocks; b != NULL; b = b->next)
        n++;
    pthread_mutex_unlock(&cudart_mutex);
    return n;
}

static void destroy_block(struct block *b)
{
    if (b != NULL)
        free(b->at);
    free(b);
}

DOUBLE_EXPORT cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_all)
{
    *ret_all = *ret_free = device_bytes;
    pthread_mutex_lock(&cudart_mutex);
    for (const struct block *b = blocks; b != NULL; b = b->next)
        if (b->type == cudaMemoryTypeDevice && b->device == current_device)
            *ret_free -= b->bytes;
    pthread_mutex_unlock(&cudart_mutex);
    return cudart_return(cudaSuccess);
}

DOUBLE_EXPORT cudaError_t cudaMalloc(void **ret, size_t bytes)
{
    if (cudart_is_unsafe("cudaMalloc is called"))
        return cudart_return(cudaErrorStreamCaptureUnsupported);
    return make(ret, bytes, cudaMemoryTypeDevice);
}

DOUBLE_EXPORT cudaError_t cudaHostAlloc(void **ret, size_t bytes, unsigned flags)
{
    (void)flags;
    if (cudart_is_unsafe("cudaHostAlloc is called"))
        return cudart_return(cudaErrorStreamCaptureUnsupported);
    return make(ret, bytes, cudaMemoryTypeHost);
}

/* It waits for all that runs on the device. */
DOUBLE_EXPORT cudaError_t cudaFree(void *p)
{
    if (p == NULL)
        return cudart_return(cudaSuccess);
    if (cudart_is_unsafe("cudaFree is called"))
        return cudart_return(cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&cudart_mutex);
    cudart_wait_all();
    struct block *b = unlink_block(p);
    pthread_mutex_unlock(&cudart_mutex);
    destroy_block(b);
    return cudart_return(b != NULL ? cudaSuccess : cudaErrorInvalidValue);
}

DOUBLE_EXPORT cudaError_t cudaFreeHost(void *p)
{
    return cudaFree(p);
}

DOUBLE_EXPORT cudaError_t cudaMallocAsync(void **ret, size_t bytes, cudaStream_t stream)
{
    if (double_is_capturing(stream)) {
        double_report("memory is allocated in a graph: this double has no such nodes");
        return cudart_return(cudaErrorNotSupported);
    }
    return make(ret, bytes, cudaMemoryTypeDevice);
}

static void free_queued(void *arg)
{
    pthread_mutex_lock(&cudart_mutex);
    struct block *b = unlink_block(*(void **)arg);
    pthread_mutex_unlock(&cudart_mutex);
    destroy_block(b);
}

DOUBLE_EXPORT cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    pthread_mutex_lock(&cudart_mutex);
    const struct block *b = find(p);
    const struct double_range all = {p, b != NULL ? b->bytes : 0, true};
    pthread_mutex_unlock(&cudart_mutex);
    return double_queue(stream, "cudaFreeAsync", free_queued, &p, sizeof p, &all, 1);
}

DOUBLE_EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *ret, const void *p)
{
    pthread_mutex_lock(&cudart_mutex);
    const struct block *b = find(p);
    *ret = (struct cudaPointerAttributes){.type = b != NULL ? b->type : cudaMemoryTypeUnregistered,
                                          .device = b != NULL ? b->device : -2};
    pthread_mutex_unlock(&cudart_mutex);
    return cudart_return(cudaSuccess);
}

/* --- copies ----------------------------------------------------------------------------------- */

struct copy {
    void *to;
    const void *from; /* NULL: the bytes at `staged` */
    size_t bytes;
    unsigned char staged[];
};

static void do_copy(void *arg)
{
    const struct copy *c = arg;
    memmove(c->to, c->from != NULL ? c->from : c->staged, c->bytes);
}

static void do_set(void *arg)
{
    const struct copy *c = arg;
    memset(c->to, c->staged[0], c->bytes);
}

/* The kind of a copy must match the kind of its memory: other copies are undefined. */
static bool is_of_kind(const struct block *b, bool of_device)
{
    const bool is_device = b != NULL && b->type == cudaMemoryTypeDevice;
    return is_device == of_device;
}

/* With the mutex held. */
static void check_kind(const void *to_at, const void *from_at, enum cudaMemcpyKind kind)
{
    const struct block *to = find(to_at), *from = find(from_at);
    static const struct {
        bool to, from; /* a device */
    } of[] = {[cudaMemcpyHostToHost] = {false, false},
              [cudaMemcpyHostToDevice] = {true, false},
              [cudaMemcpyDeviceToHost] = {false, true},
              [cudaMemcpyDeviceToDevice] = {true, true}};
    if (kind != cudaMemcpyDefault &&
        (!is_of_kind(to, of[kind].to) || !is_of_kind(from, of[kind].from)))
        double_report("a copy from %p to %p is not of the kind %d that is said", from_at, to_at,
                      (int)kind);
}

/* Of plain memory of the host CUDA takes a copy before it returns; a graph takes none, and reads it
 * in each launch. */
DOUBLE_EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                          enum cudaMemcpyKind kind, cudaStream_t stream)
{
    const bool is_captured = double_is_capturing(stream);
    pthread_mutex_lock(&cudart_mutex);
    const bool stages = find(from) == NULL && !is_captured;
    const bool to_plain = find(to) == NULL && !is_captured;
    check_kind(to, from, kind);
    pthread_mutex_unlock(&cudart_mutex);
    const struct double_range touched[] = {{to, bytes, true}, {from, bytes, false}};
    const size_t size = sizeof(struct copy) + (stages ? bytes : 0);
    struct copy *c = malloc(size);
    if (c == NULL)
        return cudart_return(cudaErrorMemoryAllocation);
    *c = (struct copy){to, stages ? NULL : from, bytes};
    if (stages)
        memcpy(c->staged, from, bytes);
    cudaError_t result =
        double_queue(stream, "cudaMemcpyAsync", do_copy, c, size, touched, stages ? 1 : 2);
    free(c);
    if (result == cudaSuccess && to_plain) /* and into it, it waits */
        result = cudaStreamSynchronize(stream);
    return result;
}

DOUBLE_EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes,
                                     enum cudaMemcpyKind kind)
{
    if (cudart_is_unsafe("cudaMemcpy is called"))
        return cudart_return(cudaErrorStreamCaptureUnsupported);
    cudaError_t result = cudaMemcpyAsync(to, from, bytes, kind, cudaStreamLegacy);
    return result == cudaSuccess ? cudaStreamSynchronize(cudaStreamLegacy) : result;
}

DOUBLE_EXPORT cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    const struct double_range touched = {to, bytes, true};
    _Alignas(struct copy) unsigned char memory[sizeof(struct copy) + 1];
    struct copy *c = (struct copy *)(void *)memory;
    *c = (struct copy){to, NULL, bytes};
    c->staged[0] = (unsigned char)value;
    return double_queue(stream, "cudaMemsetAsync", do_set, c, sizeof memory, &touched, 1);
}

/* --- words ------------------------------------------------------------------------------------ */

DOUBLE_EXPORT const char *cudaGetErrorName(cudaError_t result)
{
    switch (result) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorLaunchFailure:
        return "cudaErrorLaunchFailure";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorStreamCaptureInvalidated:
        return "cudaErrorStreamCaptureInvalidated";
    default:
        return "cudaError of the double";
    }
}

DOUBLE_EXPORT const char *cudaGetErrorString(cudaError_t result)
{
    return result == cudaErrorLaunchFailure ? "unspecified launch failure"
                                            : "an error of the double";
}

DOUBLE_EXPORT cudaError_t cudaGetLastError(void)
{
    const cudaError_t result = last_error;
    last_error = cudaSuccess;
    return result;
}
