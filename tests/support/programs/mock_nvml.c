/* mock_nvml.c - a MOCK of NVIDIA's NVML for machines without a GPU: it has the functions that
 * ddprun calls, and answers what the file named by MOCK_NVML contains, which may change at any
 * time. A line is "NAME VALUE", or "NAME GPU VALUE":
 *
 *     count N          GPUs; 1 by default
 *     init N           nvmlInit_v2 fails with N
 *     hang 1           nvmlDeviceGetMemoryInfo never returns
 *     lost GPU N       each call about it fails with N
 *     action GPU N     its recovery action
 *     ecc GPU N        uncorrected errors
 *     xid GPU N        an event, given once
 *     used GPU N       MiB of its memory
 *     processes GPU N  that use it
 *     fabric N         the UUID of the NVLink domain ends with N; 0, the default: no such domain
 *     clique GPU N     in it */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, MAX_GPUS = 8 };

struct memory {
    unsigned long long total, free, used;
};

struct field {
    unsigned id, scope;
    long long timestamp, latency_us;
    int value_type, result;
    union {
        unsigned number;
        unsigned long long bytes;
    } value;
};

struct fabric {
    unsigned char uuid[16];
    int status;
    unsigned clique;
    unsigned char state;
};

struct event {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

static char devices[MAX_GPUS];
static bool has_xid[MAX_GPUS], has_set;

/* gpu   -1: of no GPU. returns the value, or what is given for a missing line */
static unsigned long long look_up(const char *name, int gpu, unsigned long long missing)
{
    const char *path = getenv("MOCK_NVML");
    FILE *f = path != NULL ? fopen(path, "r") : NULL;
    char line[128], key[32];
    unsigned long long first, second, found = missing;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        const int n = sscanf(line, "%31s %llu %llu", key, &first, &second);
        if (n >= 2 && strcmp(key, name) == 0 && gpu < 0)
            found = first;
        else if (n == 3 && strcmp(key, name) == 0 && first == (unsigned long long)gpu)
            found = second;
    }
    if (f != NULL)
        fclose(f);
    return found;
}

static int number_of(const void *device)
{
    return (int)((const char *)device - devices);
}

static int lost(const void *device)
{
    return (int)look_up("lost", number_of(device), SUCCESS);
}

#pragma GCC visibility push(default)
int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int result);
int nvmlDeviceGetCount_v2(unsigned *ret);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret);
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **ret);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *ret);
int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *ret);
int nvmlDeviceGetFieldValues(void *device, int n, struct field *values);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, void *infos);
int nvmlDeviceGetGpuFabricInfo(void *device, struct fabric *ret);
int nvmlEventSetCreate(void **ret);
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set);
int nvmlEventSetWait_v2(void *set, struct event *ret, unsigned timeout_ms);
int nvmlEventSetFree(void *set);
#pragma GCC visibility pop

int nvmlInit_v2(void)
{
    return (int)look_up("init", -1, SUCCESS);
}

int nvmlShutdown(void)
{
    return SUCCESS;
}

const char *nvmlErrorString(int result)
{
    return result == 18 ? "Driver/library version mismatch" : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned *ret)
{
    *ret = (unsigned)look_up("count", -1, 1);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret)
{
    *ret = &devices[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **ret)
{
    (void)id;
    (void)ret;
    return 6;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *ret)
{
    while (look_up("hang", -1, 0) != 0)
        pause();
    ret->total = 80ULL << 30;
    ret->used = look_up("used", number_of(device), 0) << 20;
    ret->free = ret->total - ret->used;
    return lost(device);
}

int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *ret)
{
    *ret = look_up("ecc", number_of(device), 0);
    return type == 1 && counter == 0 ? lost(device) : NOT_SUPPORTED;
}

int nvmlDeviceGetFieldValues(void *device, int n, struct field *values)
{
    for (int i = 0; i < n; i++) {
        values[i].result = values[i].id == 230 ? SUCCESS : NOT_SUPPORTED;
        values[i].value.number = (unsigned)look_up("action", number_of(device), 0);
    }
    return lost(device);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, void *infos)
{
    (void)infos;
    *n = (unsigned)look_up("processes", number_of(device), 0);
    return lost(device) != SUCCESS ? lost(device) : *n == 0 ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlDeviceGetGpuFabricInfo(void *device, struct fabric *ret)
{
    const unsigned long long domain = look_up("fabric", -1, 0);
    *ret = (struct fabric){.uuid = {[15] = (unsigned char)domain},
                           .clique = (unsigned)look_up("clique", number_of(device), 0),
                           .state = domain != 0 ? 3 : 0};
    return lost(device);
}

int nvmlEventSetCreate(void **ret)
{
    has_set = true;
    *ret = &has_set;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set)
{
    (void)device;
    return types == 8 && set == &has_set ? SUCCESS : NOT_SUPPORTED;
}

int nvmlEventSetWait_v2(void *set, struct event *ret, unsigned timeout_ms)
{
    (void)set;
    (void)timeout_ms;
    for (int i = 0; i < MAX_GPUS; i++) {
        const unsigned long long xid = look_up("xid", i, 0);
        if (xid == 0 || has_xid[i])
            continue;
        has_xid[i] = true;
        *ret = (struct event){.device = &devices[i], .type = 8, .data = xid};
        return SUCCESS;
    }
    return TIMEOUT;
}

int nvmlEventSetFree(void *set)
{
    (void)set;
    has_set = false;
    return SUCCESS;
}
