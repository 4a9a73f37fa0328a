/* A libnvidia-ml.so.1 that answers from a file, so that the whole way from NVML to a finding can be
 * tested where there is no GPU: the real nvidia-ml-py loads it in place of the driver's library.
 *
 * The file is named by FAKE_NVML_SCENARIO; it has a line "key = value" for each answer:
 *
 *     driver = 550.54.15          gpus = 2
 *     gpu0.nvmlDeviceGetName = NVIDIA A100-SXM4-80GB
 *     gpu0.nvmlDeviceGetEccMode = 1 1
 *     gpu0.link3.state = 1        pair0-1.ancestor = 50
 *
 * What has no line is not supported. A value "!15" is the error of that number, "hang" waits until
 * it is killed, "crash" ends the process by a signal.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, VERSION_MISMATCH = 25 };

#define MOST 4096
static char *keys[MOST], *values[MOST];
static int lines;

static int load(void)
{
    const char *path = getenv("FAKE_NVML_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[1024];
    if (!file)
        return 9; /* the driver is not loaded */
    while (lines < MOST && fgets(line, sizeof line, file)) {
        char *sign = strstr(line, " = ");
        if (line[0] == '#' || !sign)
            continue;
        *sign = '\0';
        sign[3 + strcspn(sign + 3, "\n")] = '\0';
        keys[lines] = strdup(line);
        values[lines++] = strdup(sign + 3);
    }
    fclose(file);
    return SUCCESS;
}

/* The value of a key made as by printf, and in *status what the call is to return. */
static const char *get(int *status, const char *format, ...)
{
    char key[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    *status = NOT_SUPPORTED;
    for (int i = 0; i < lines; i++) {
        if (strcmp(keys[i], key))
            continue;
        if (!strcmp(values[i], "hang"))
            for (;;)
                pause();
        if (!strcmp(values[i], "crash"))
            raise(SIGSEGV);
        *status = values[i][0] == '!' ? atoi(values[i] + 1) : SUCCESS;
        return values[i];
    }
    return "";
}

static int number_of(void *device) { return (int)(intptr_t)device - 1; }

static int text(const char *value, int status, char *out, unsigned size)
{
    if (status == SUCCESS)
        snprintf(out, size, "%s", value);
    return status;
}

/* One call that fills n numbers of 32 bits. */
static int numbers(void *device, const char *name, int n, uint32_t **out)
{
    int status;
    const char *value = get(&status, "gpu%d.%s", number_of(device), name);
    if (status != SUCCESS)
        return status;
    for (int i = 0; i < n; i++) {
        char *end;
        *out[i] = (uint32_t)strtoll(value, &end, 0);
        value = end;
    }
    return SUCCESS;
}

#define ONE(name) \
    int name(void *device, uint32_t *a) { return numbers(device, #name, 1, (uint32_t *[]){a}); }
#define TWO(name) \
    int name(void *device, uint32_t *a, uint32_t *b) { return numbers(device, #name, 2, (uint32_t *[]){a, b}); }
#define INDEXED(name) \
    int name(void *device, uint32_t which, uint32_t *a) \
    { \
        char key[128]; \
        snprintf(key, sizeof key, #name "(%u)", which); \
        return numbers(device, key, 1, (uint32_t *[]){a}); \
    }

ONE(nvmlDeviceGetArchitecture)
ONE(nvmlDeviceGetPersistenceMode)
ONE(nvmlDeviceGetComputeMode)
ONE(nvmlDeviceGetVirtualizationMode)
ONE(nvmlDeviceGetPerformanceState)
ONE(nvmlDeviceGetPowerUsage)
ONE(nvmlDeviceGetEnforcedPowerLimit)
ONE(nvmlDeviceGetPowerManagementDefaultLimit)
ONE(nvmlDeviceGetCurrPcieLinkGeneration)
ONE(nvmlDeviceGetCurrPcieLinkWidth)
ONE(nvmlDeviceGetMaxPcieLinkGeneration)
ONE(nvmlDeviceGetMaxPcieLinkWidth)
ONE(nvmlDeviceGetGpuMaxPcieLinkGeneration)
ONE(nvmlDeviceGetNumaNodeId)
TWO(nvmlDeviceGetMigMode)
TWO(nvmlDeviceGetEccMode)
TWO(nvmlDeviceGetCudaComputeCapability)
TWO(nvmlDeviceGetPowerManagementLimitConstraints)
INDEXED(nvmlDeviceGetClockInfo)
INDEXED(nvmlDeviceGetMaxClockInfo)
INDEXED(nvmlDeviceGetApplicationsClock)
INDEXED(nvmlDeviceGetDefaultApplicationsClock)
INDEXED(nvmlDeviceGetTemperature)
INDEXED(nvmlDeviceGetTemperatureThreshold)

int nvmlInitWithFlags(unsigned flags)
{
    int status = load();
    (void)flags;
    if (status != SUCCESS)
        return status;
    get(&status, "nvmlInit");
    return status == NOT_SUPPORTED ? SUCCESS : status;
}

int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int error) { (void)error; return "an error"; }

int nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    int status;
    const char *value = get(&status, "driver");
    return text(value, status, out, size);
}

int nvmlSystemGetCudaDriverVersion(int *out)
{
    int status;
    const char *value = get(&status, "cuda");
    if (status == SUCCESS)
        *out = atoi(value);
    return status;
}

int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size)
{
    int status;
    const char *value = get(&status, "pid%u", pid);
    return text(value, status, out, size);
}

int nvmlDeviceGetCount_v2(unsigned *out)
{
    int status;
    const char *value = get(&status, "gpus");
    *out = status == SUCCESS ? (unsigned)atoi(value) : 0;
    return status;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out)
{
    int status;
    get(&status, "gpu%u", index);
    *out = (void *)(intptr_t)(index + 1);
    return status == NOT_SUPPORTED ? SUCCESS : status;
}

/* NVML takes the domain with four or eight digits; the scenario has eight. */
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out)
{
    int status, gpus = 0;
    const char *value = get(&status, "gpus");
    if (status == SUCCESS)
        gpus = atoi(value);
    for (int index = 0; index < gpus; index++) {
        value = get(&status, "gpu%d.pci", index);
        if (status == SUCCESS && strlen(value) >= strlen(bus) && !strcmp(value + strlen(value) - strlen(bus), bus)) {
            *out = (void *)(intptr_t)(index + 1);
            return SUCCESS;
        }
    }
    return 6; /* not found */
}

struct pci_info {
    char legacy[16];
    uint32_t domain, bus, device, id, subsystem;
    char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *out)
{
    int status;
    const char *value = get(&status, "gpu%d.pci", number_of(device));
    return text(value, status, out->bus_id, sizeof out->bus_id);
}

int nvmlDeviceGetName(void *device, char *out, unsigned size)
{
    int status;
    const char *value = get(&status, "gpu%d.nvmlDeviceGetName", number_of(device));
    return text(value, status, out, size);
}

int nvmlDeviceGetUUID(void *device, char *out, unsigned size)
{
    int status;
    const char *value = get(&status, "gpu%d.nvmlDeviceGetUUID", number_of(device));
    return text(value, status, out, size);
}

int nvmlDeviceGetUtilizationRates(void *device, uint32_t out[2])
{
    return numbers(device, "nvmlDeviceGetUtilizationRates", 2, (uint32_t *[]){&out[0], &out[1]});
}

static int wide(void *device, const char *name, int n, uint64_t *out)
{
    int status;
    const char *value = get(&status, "gpu%d.%s", number_of(device), name);
    for (int i = 0; status == SUCCESS && i < n; i++) {
        char *end;
        out[i] = strtoull(value, &end, 0);
        value = end;
    }
    return status;
}

int nvmlDeviceGetMemoryInfo(void *device, uint64_t out[3]) { return wide(device, "nvmlDeviceGetMemoryInfo", 3, out); }

int nvmlDeviceGetCurrentClocksEventReasons(void *device, uint64_t *out)
{
    return wide(device, "nvmlDeviceGetCurrentClocksEventReasons", 1, out);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, uint64_t *out)
{
    return wide(device, "nvmlDeviceGetCurrentClocksThrottleReasons", 1, out);
}

int nvmlDeviceGetViolationStatus(void *device, unsigned policy, uint64_t out[2])
{
    char key[64];
    snprintf(key, sizeof key, "nvmlDeviceGetViolationStatus(%u)", policy);
    out[0] = 0;
    return wide(device, key, 1, &out[1]);
}

int nvmlDeviceGetCpuAffinity(void *device, unsigned n, uint64_t *out)
{
    memset(out, 0, n * sizeof *out);
    return wide(device, "nvmlDeviceGetCpuAffinity", 1, out);
}

int nvmlDeviceGetTotalEccErrors(void *device, unsigned kind, unsigned counter, uint64_t *out)
{
    char key[64];
    snprintf(key, sizeof key, "ecc(%u, %u)", kind, counter);
    return wide(device, key, 1, out);
}

int nvmlDeviceGetMemoryErrorCounter(void *device, unsigned kind, unsigned counter, unsigned where, uint64_t *out)
{
    char key[64];
    snprintf(key, sizeof key, "ecc(%u, %u, %u)", kind, counter, where);
    return wide(device, key, 1, out);
}

struct sram_status {
    uint32_t version;
    uint64_t counts[11];
    uint32_t threshold_exceeded;
};

int nvmlDeviceGetSramEccErrorStatus(void *device, struct sram_status *out)
{
    return numbers(device, "sram.threshold_exceeded", 1, (uint32_t *[]){&out->threshold_exceeded});
}

int nvmlDeviceGetRemappedRows(void *device, uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d)
{
    return numbers(device, "nvmlDeviceGetRemappedRows", 4, (uint32_t *[]){a, b, c, d});
}

struct process {
    uint32_t pid;
    uint64_t memory;
    uint32_t gpu_instance, compute_instance;
};

static int running(void *device, const char *name, uint32_t *count, struct process *out)
{
    int status;
    const char *value = get(&status, "gpu%d.%s", number_of(device), name);
    uint32_t room = *count, n = 0;
    if (status != SUCCESS)
        return status;
    for (; *value; n++) {
        char *end;
        struct process one = {0};
        one.pid = (uint32_t)strtoul(value, &end, 10);
        one.memory = strtoull(end, &end, 10);
        if (out && n < room)
            out[n] = one;
        value = end + strspn(end, " ");
    }
    *count = n;
    return n > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, uint32_t *count, struct process *out)
{
    return running(device, "compute", count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, uint32_t *count, struct process *out)
{
    return running(device, "graphics", count, out);
}

struct field {
    uint32_t id, scope;
    int64_t timestamp, latency;
    int32_t type, status;
    uint64_t value;
};

int nvmlDeviceGetFieldValues(void *device, int32_t n, struct field *fields)
{
    int status;
    get(&status, "gpu%d.fields", number_of(device)); /* an error of all of them */
    if (status != NOT_SUPPORTED)
        return status;
    for (int i = 0; i < n; i++) {
        const char *value = fields[i].id >= 164 && fields[i].id != 230
            ? get(&fields[i].status, "gpu%d.link%u.field%u", number_of(device), fields[i].scope, fields[i].id)
            : get(&fields[i].status, "gpu%d.field%u", number_of(device), fields[i].id);
        fields[i].type = 3; /* unsigned long long */
        fields[i].value = strtoull(value, NULL, 0);
    }
    return SUCCESS;
}

/* A link that the file does not know does not exist, as long as it knows any. */
static int link_number(void *device, unsigned link, const char *name, uint64_t *out)
{
    int status, any;
    const char *value = get(&status, "gpu%d.link%u.%s", number_of(device), link, name);
    if (status == NOT_SUPPORTED && !strcmp(name, "state")) {
        get(&any, "gpu%d.link0.state", number_of(device));
        return any == SUCCESS ? INVALID_ARGUMENT : NOT_SUPPORTED;
    }
    *out = strtoull(value, NULL, 0);
    return status;
}

#define LINK(name, key) \
    int name(void *device, unsigned link, uint32_t *out) \
    { \
        uint64_t value = 0; \
        int status = link_number(device, link, key, &value); \
        *out = (uint32_t)value; \
        return status; \
    }

LINK(nvmlDeviceGetNvLinkState, "state")
LINK(nvmlDeviceGetNvLinkVersion, "version")
LINK(nvmlDeviceGetNvLinkRemoteDeviceType, "remote")

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci_info *out)
{
    int status;
    const char *value = get(&status, "gpu%d.link%u.pci", number_of(device), link);
    return text(value, status, out->bus_id, sizeof out->bus_id);
}

int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned link, unsigned counter, uint64_t *out)
{
    char key[32];
    snprintf(key, sizeof key, "errors%u", counter);
    *out = 0;
    return link_number(device, link, key, out);
}

struct fabric {
    uint32_t version;
    uint8_t cluster[16];
    uint32_t status, clique, state, health_mask;
    uint8_t health_summary;
};

/* "state status mask [summary]"; without the last the driver knows the second version only */
int nvmlDeviceGetGpuFabricInfoV(void *device, struct fabric *out)
{
    int status;
    const char *value = get(&status, "gpu%d.fabric", number_of(device));
    unsigned state, result, mask, summary;
    int found = sscanf(value, "%u %u %i %u", &state, &result, (int *)&mask, &summary);
    if (status != SUCCESS)
        return status;
    if (out->version == 0x3000028 && found < 4)
        return VERSION_MISMATCH;
    out->state = state;
    out->status = result;
    out->health_mask = mask;
    if (out->version == 0x3000028)
        out->health_summary = (uint8_t)summary;
    return SUCCESS;
}

static int pair(void *a, void *b, const char *name, uint32_t *out)
{
    int status;
    const char *value = get(&status, "pair%d-%d.%s", number_of(a), number_of(b), name);
    *out = (uint32_t)atoi(value);
    return status;
}

int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, uint32_t *out) { return pair(a, b, "ancestor", out); }

int nvmlDeviceGetP2PStatus(void *a, void *b, unsigned capability, uint32_t *out)
{
    char key[16];
    snprintf(key, sizeof key, "p2p%u", capability);
    return pair(a, b, key, out);
}
