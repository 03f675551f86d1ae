/* nvml.c - what is used of NVML's interface is declared here: its header may not be installed, and
 * its library has kept these functions for years. Field 230, the recovery action, is of driver 570;
 * an older one does not know it. The NVLink domain of a GPU is of driver 525. */
#include "nvml.h"

#include "launcher/platform/gpus.h"
#include "launcher/platform/linkage.h"

#include "common/error.h"
#include "common/scope.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NVML_SUCCESS = 0,
    NVML_NOT_SUPPORTED = 3,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_NOT_FOUND = 6,
    NVML_UNCORRECTED = 1,
    NVML_VOLATILE = 0,
    NVML_RECOVERY_ACTION = 230,
    NVML_EVENT_XID = 8,
    NVML_FABRIC_NOT_SUPPORTED = 0,
    NVML_FABRIC_COMPLETED = 3,
    UUID_BYTES = 16,
    MOST_EVENTS = 1000, /* read at once: a GPU may repeat them */
};

typedef void *device;

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
    unsigned char uuid[UUID_BYTES];
    int status;
    unsigned clique;
    unsigned char state;
};

struct event {
    device device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int result);
    int (*count)(unsigned *ret);
    int (*by_index)(unsigned index, device *ret);
    int (*by_bus_id)(const char *id, device *ret);
    int (*memory)(device d, struct memory *ret);
    int (*ecc)(device d, int type, int counter, unsigned long long *ret);
    int (*fields)(device d, int n, struct field *values);
    int (*processes)(device d, unsigned *n, void *infos);
    int (*fabric)(device d, struct fabric *ret);
    int (*event_set)(void **ret);
    int (*add_events)(device d, unsigned long long types, void *set);
    int (*wait)(void *set, struct event *ret, unsigned timeout_ms);
    int (*free_set)(void *set);

    void *events; /* NULL: Xids are not noted */
    unsigned n;
    device devices[HEALTH_GPUS_MAX];
    int found[HEALTH_GPUS_MAX]; /* 0, or the error of the search for the device */
    uint32_t xids[HEALTH_GPUS_MAX];
};

/* --- Loading --- */

static const struct {
    const char *name;
    size_t at;
    bool is_optional;
} symbols[] = {
    {"nvmlInit_v2", offsetof(struct nvml, init), false},
    {"nvmlShutdown", offsetof(struct nvml, shutdown), false},
    {"nvmlErrorString", offsetof(struct nvml, error_string), false},
    {"nvmlDeviceGetCount_v2", offsetof(struct nvml, count), false},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct nvml, by_index), false},
    {"nvmlDeviceGetHandleByPciBusId_v2", offsetof(struct nvml, by_bus_id), false},
    {"nvmlDeviceGetMemoryInfo", offsetof(struct nvml, memory), false},
    {"nvmlDeviceGetTotalEccErrors", offsetof(struct nvml, ecc), false},
    {"nvmlDeviceGetFieldValues", offsetof(struct nvml, fields), true},
    {"nvmlDeviceGetComputeRunningProcesses_v3", offsetof(struct nvml, processes), true},
    {"nvmlDeviceGetGpuFabricInfo", offsetof(struct nvml, fabric), true},
    {"nvmlEventSetCreate", offsetof(struct nvml, event_set), true},
    {"nvmlDeviceRegisterEvents", offsetof(struct nvml, add_events), true},
    {"nvmlEventSetWait_v2", offsetof(struct nvml, wait), true},
    {"nvmlEventSetFree", offsetof(struct nvml, free_set), true},
};

/* returns the name of what is missing; NULL: nothing */
static const char *bind_symbols(struct nvml *n)
{
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *at = dlsym(n->library, symbols[i].name);
        if (at == NULL && !symbols[i].is_optional)
            return symbols[i].name;
        memcpy((char *)n + symbols[i].at, &at, sizeof at);
    }
    return NULL;
}

/* --- Devices --- */

static void add_by_bus_ids(struct nvml *n, const struct gpus *all, const char *visible)
{
    const struct gpu *g;
    for (int i = 0; n->n < HEALTH_GPUS_MAX && (g = gpus_get(all, visible, i)) != NULL; i++) {
        n->found[n->n] = n->by_bus_id(g->bus_id, &n->devices[n->n]);
        n->n++;
    }
}

static int add_by_index(struct nvml *n)
{
    unsigned count = 0;
    int result = n->count(&count);
    for (unsigned i = 0; result == NVML_SUCCESS && i < count && n->n < HEALTH_GPUS_MAX; i++) {
        n->found[n->n] = n->by_index(i, &n->devices[n->n]);
        n->n++;
    }
    return result;
}

/* NVML knows GPUs that the job does not use. The kernel's files name those that it does. */
static int find_devices(struct nvml *n, const char *visible)
{
    struct gpus *raw = NULL;
    if (gpus_find("", &raw) < 0 || raw == NULL || raw->n == 0) {
        free(raw);
        return add_by_index(n);
    }
    add_by_bus_ids(n, raw, visible);
    free(raw);
    for (unsigned i = 0; i < n->n; i++)
        if (n->found[i] != NVML_NOT_FOUND)
            return NVML_SUCCESS;
    n->n = 0; /* they are another vendor's */
    return add_by_index(n);
}

static void note_xids(struct nvml *n)
{
    if (n->event_set == NULL || n->add_events == NULL || n->wait == NULL || n->free_set == NULL ||
        n->event_set(&n->events) != NVML_SUCCESS) {
        n->events = NULL;
        return;
    }
    for (unsigned i = 0; i < n->n; i++)
        if (n->found[i] == NVML_SUCCESS)
            n->add_events(n->devices[i], NVML_EVENT_XID, n->events); /* where it is supported */
}

/* returns NVML's error, and writes the trouble; NVML_SUCCESS */
static int begin(struct nvml *n, const char *visible, char *trouble)
{
    int result = n->init();
    if (result == NVML_SUCCESS)
        result = find_devices(n, visible);
    if (result == NVML_SUCCESS)
        note_xids(n);
    else if (result != NVML_DRIVER_NOT_LOADED)
        snprintf(trouble, HEALTH_TEXT_BYTES, "NVML cannot be used: %.100s",
                 n->error_string(result));
    return result;
}

void nvml_open(const char *library, const char *visible, struct nvml **ret, char *trouble)
{
    struct nvml *n = calloc(1, sizeof *n);
    struct co_error err;
    trouble[0] = '\0';
    *ret = NULL;
    if (n == NULL || linkage_load(library, &n->library, &err) < 0) {
        free(n);
        return;
    }
    const char *missing = bind_symbols(n);
    if (missing != NULL)
        snprintf(trouble, HEALTH_TEXT_BYTES, "NVML cannot be used: it has no %s", missing);
    if (missing == NULL && begin(n, visible, trouble) == NVML_SUCCESS && n->n > 0) {
        *ret = n;
        return;
    }
    dlclose(n->library);
    free(n);
}

void nvml_close(struct nvml *n)
{
    if (n == NULL)
        return;
    if (n->events != NULL)
        n->free_set(n->events);
    n->shutdown();
    dlclose(n->library);
    free(n);
}

/* --- Facts --- */

static void take_xids(struct nvml *n)
{
    struct event e;
    for (int i = 0; n->events != NULL && i < MOST_EVENTS; i++) {
        e = (struct event){0};
        if (n->wait(n->events, &e, 0) != NVML_SUCCESS) /* none is left */
            return;
        for (unsigned k = 0; k < n->n; k++)
            if (n->devices[k] == e.device && health_checks_is_fatal_xid(e.data))
                n->xids[k] = (uint32_t)e.data;
    }
}

static uint32_t read_action(struct nvml *n, device d)
{
    struct field f = {.id = NVML_RECOVERY_ACTION};
    if (n->fields == NULL || n->fields(d, 1, &f) != NVML_SUCCESS || f.result != NVML_SUCCESS)
        return 0;
    return f.value.number;
}

static uint32_t count_processes(struct nvml *n, device d)
{
    unsigned count = 0;
    if (n->processes == NULL)
        return 1; /* unknown: memory in use is not judged then */
    const int result = n->processes(d, &count, NULL);
    return result == NVML_SUCCESS ? 0 : result == NVML_INSUFFICIENT_SIZE ? count : 1;
}

static struct health_gpu_facts read_gpu(struct nvml *n, unsigned i)
{
    struct memory memory = {0};
    unsigned long long errors = 0;
    struct health_gpu_facts g = {.error = n->found[i], .xid = n->xids[i]};
    if (g.error != 0)
        return g;
    g.error = n->memory(n->devices[i], &memory);
    if (g.error == NVML_NOT_SUPPORTED) /* an integrated GPU */
        g.error = 0;
    g.used_bytes = g.error == 0 && memory.total > 0 ? memory.used : HEALTH_UNKNOWN;
    g.ecc_errors = n->ecc(n->devices[i], NVML_UNCORRECTED, NVML_VOLATILE, &errors) == NVML_SUCCESS
                       ? errors
                       : HEALTH_UNKNOWN;
    g.action = read_action(n, n->devices[i]);
    g.n_processes = count_processes(n, n->devices[i]);
    return g;
}

void nvml_read(struct nvml *n, struct health_facts *ret)
{
    ret->n_gpus = 0;
    if (n == NULL)
        return;
    take_xids(n);
    for (unsigned i = 0; i < n->n; i++)
        ret->gpus[ret->n_gpus++] = read_gpu(n, i);
}

/* --- The NVLink domain --- */

static bool is_zero(const unsigned char *bytes, size_t n)
{
    unsigned char all = 0;
    for (size_t i = 0; i < n; i++)
        all |= bytes[i];
    return all == 0;
}

/* "8 bytes-4-4-4-12.clique" */
static void print_fabric(const struct fabric *f, char text[HEALTH_FABRIC_BYTES])
{
    size_t n = 0;
    for (int i = 0; i < UUID_BYTES; i++)
        n += (size_t)snprintf(text + n, HEALTH_FABRIC_BYTES - n, "%s%02x",
                              i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", f->uuid[i]);
    snprintf(text + n, HEALTH_FABRIC_BYTES - n, ".%u", f->clique);
}

/* returns whether there is one; else the trouble is written */
static bool ask_fabric(struct nvml *n, unsigned i, char text[HEALTH_FABRIC_BYTES], char *trouble)
{
    struct fabric f = {.state = NVML_FABRIC_NOT_SUPPORTED};
    const int result = n->found[i] != 0 ? n->found[i] : n->fabric(n->devices[i], &f);
    if (result == NVML_NOT_SUPPORTED ||
        (result == NVML_SUCCESS && f.state == NVML_FABRIC_NOT_SUPPORTED))
        snprintf(trouble, HEALTH_TEXT_BYTES, "GPU %u is in no NVLink domain", i);
    else if (result != NVML_SUCCESS)
        snprintf(trouble, HEALTH_TEXT_BYTES, "GPU %u does not answer (NVML error %d)", i, result);
    else if (f.state != NVML_FABRIC_COMPLETED)
        snprintf(trouble, HEALTH_TEXT_BYTES, "GPU %u has not joined its NVLink domain yet", i);
    else if (f.status != NVML_SUCCESS)
        snprintf(trouble, HEALTH_TEXT_BYTES,
                 "GPU %u could not join its NVLink domain: NVML error %d", i, f.status);
    else if (is_zero(f.uuid, UUID_BYTES))
        snprintf(trouble, HEALTH_TEXT_BYTES, "the NVLink domain of GPU %u is this node only", i);
    else
        print_fabric(&f, text);
    return trouble[0] == '\0';
}

void nvml_read_fabric(struct nvml *n, struct health_facts *ret)
{
    char *trouble = ret->fabric_trouble, other[HEALTH_FABRIC_BYTES];
    ret->fabric[0] = trouble[0] = '\0';
    if (n == NULL)
        snprintf(trouble, HEALTH_TEXT_BYTES, "%s",
                 ret->gpu_trouble[0] != '\0' ? ret->gpu_trouble
                                             : "NVML was not found, or has no GPU");
    else if (n->fabric == NULL)
        snprintf(trouble, HEALTH_TEXT_BYTES, "NVML of this driver reports no NVLink domains");
    if (trouble[0] != '\0' || !ask_fabric(n, 0, ret->fabric, trouble))
        return;
    for (unsigned i = 1; i < n->n && ask_fabric(n, i, other, trouble); i++)
        if (strcmp(other, ret->fabric) != 0) {
            snprintf(trouble, HEALTH_TEXT_BYTES, "GPUs 0 and %u are in different NVLink domains",
                     i);
            break;
        }
    if (trouble[0] != '\0')
        ret->fabric[0] = '\0';
}
