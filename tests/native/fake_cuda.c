/* A libcuda.so.1 without a GPU: the real engine of hwtune loads it in place of the driver's library.
 *
 * It is strict. Each handle must be one that is alive, each copy must lie within what was allocated, the context must be
 * current, a graph must not be launched while it runs, nothing may be freed that is still needed, and nothing may be
 * asked after the GPU is lost. Whatever breaks a rule gets an error, and a line in the file FAKE_CUDA_LOG, which tests
 * expect to be empty in the end.
 *
 * It is lazy. What is put on a stream is done when somebody asks after its time has come, and not before: scores that
 * are read too early are not there. Kernels come from FAKE_CUDA_KERNELS (fake_cuda_kernels.cpp).
 *
 * FAKE_CUDA_SCENARIO names a file of lines "key = value":
 *
 *     devices = 1   capability = 80   driver = 12040   memory = 85899345920   allowed = BYTES (to allocate at most)
 *     in_us = 5     compute_us = 20   out_us = 5       compute = 0 (kernels do nothing)
 *     init = CODE   retain = CODE     instantiate = CODE      each call of that kind fails
 *     launch = CODE N    the N-th cuGraphLaunch fails, and the GPU is lost
 *     query = CODE N     the first query after the N-th cuGraphLaunch says so, and the GPU is lost
 *     hang = N           what the N-th cuGraphLaunch began never ends
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    OK = 0, INVALID_VALUE = 1, NO_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_IMAGE = 200, INVALID_CONTEXT = 201, ECC = 214, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600,
    LAUNCH_FAILED = 719, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, UNKNOWN = 999
};
#define NEVER UINT64_MAX
#define MOST 65536

typedef struct FakeKernel {
    const char *name;
    int parameters;
    void (*run)(int block, int threads, void **arguments);
} FakeKernel;

typedef enum { STREAM, EVENT, GRAPH, EXEC, MODULE, FUNCTION, CONTEXT } Kind;
static const char *const kinds[] = {"stream", "event", "graph", "executable graph", "module", "function", "context"};

typedef struct Node {
    enum { COPY_IN, COPY_OUT, KERNEL, RECORD } type;
    char *to;
    const char *from;
    size_t bytes;
    const FakeKernel *kernel;
    int grid, threads;
    uint64_t parameters[8];
    struct Object *event;
} Node;

typedef struct Work { /* on a stream */
    Node nodes[16];
    int count;
    uint64_t begin, due;
    struct Object *exec;
} Work;

typedef struct Object {
    Kind kind;
    int alive;
    Node nodes[16]; /* of a graph */
    int count;
    Work queue[64]; /* of a stream */
    int queued;
    uint64_t busy_until;
    struct Object *capture, *stream;
    int pending, timed; /* of an event; of an exec */
    uint64_t time;
    const FakeKernel *kernel;
} Object;

typedef struct Block {
    char *at;
    size_t bytes;
    int alive, pinned;
} Block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Object *objects[MOST];
static Block blocks[MOST];
static int object_count, block_count, initialised, retained, lost, launches, query_armed;
static size_t allocated;
static Object context = {.kind = CONTEXT, .alive = 0};
static __thread Object *current;
static const FakeKernel *kernels;

static void wrong(const char *format, ...)
{
    const char *path = getenv("FAKE_CUDA_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    va_list arguments;
    va_start(arguments, format);
    if (file) {
        vfprintf(file, format, arguments);
        fputc('\n', file);
        fclose(file);
    }
    va_end(arguments);
}

/* The numbers of a key; 0 without it. */
static int get(const char *key, long long *first, long long *second)
{
    const char *path = getenv("FAKE_CUDA_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256], name[64];
    int found = 0;
    while (file && fgets(line, sizeof line, file)) {
        long long a = 0, b = 0;
        int count = sscanf(line, "%63s = %lld %lld", name, &a, &b);
        if (count >= 2 && !strcmp(name, key)) {
            *first = a;
            if (second)
                *second = b;
            found = 1;
        }
    }
    if (file)
        fclose(file);
    return found;
}
static long long number(const char *key, long long otherwise)
{
    get(key, &otherwise, NULL);
    return otherwise;
}

/* Read once: a query would be no faster than the file otherwise. */
static struct {
    uint64_t in, compute, out;
    int kernels, hang, launch_code, launch_at, query_code, query_at;
    long long allowed;
} scene;

static void read_scene(void)
{
    long long code = 0, at = 0;
    scene.in = (uint64_t)number("in_us", 0) * 1000;
    scene.compute = (uint64_t)number("compute_us", 0) * 1000;
    scene.out = (uint64_t)number("out_us", 0) * 1000;
    scene.kernels = (int)number("compute", 1);
    scene.hang = (int)number("hang", 0);
    scene.allowed = number("allowed", 1LL << 40);
    if (get("launch", &code, &at))
        scene.launch_code = (int)code, scene.launch_at = (int)at;
    if (get("query", &code, &at))
        scene.query_code = (int)code, scene.query_at = (int)at;
}

static uint64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static int leave(int code)
{
    pthread_mutex_unlock(&lock);
    return code;
}
/* 0, or the error with which the call ends. */
static int enter(const char *call, int needs_context)
{
    pthread_mutex_lock(&lock);
    if (!initialised) {
        wrong("%s before cuInit", call);
        return NOT_INITIALIZED;
    }
    if (lost) {
        wrong("%s of a lost GPU", call);
        return lost;
    }
    if (needs_context && (!current || !current->alive)) {
        wrong("%s without a current context", call);
        return INVALID_CONTEXT;
    }
    return OK;
}
#define ENTER(needs_context)                                \
    do {                                                    \
        int refused = enter(__func__, needs_context);       \
        if (refused)                                        \
            return leave(refused);                          \
    } while (0)

static Object *create(Kind kind)
{
    Object *made = calloc(1, sizeof *made);
    made->kind = kind;
    made->alive = 1;
    objects[object_count++] = made;
    return made;
}
static Object *alive(const char *call, void *handle, Kind kind)
{
    for (int i = 0; i < object_count; i++)
        if (objects[i] == handle) {
            if (objects[i]->kind != kind)
                wrong("%s: a %s where a %s is due", call, kinds[objects[i]->kind], kinds[kind]);
            else if (!objects[i]->alive)
                wrong("%s: a %s that has been destroyed", call, kinds[kind]);
            else
                return objects[i];
            return NULL;
        }
    wrong("%s: no such %s", call, kinds[kind]);
    return NULL;
}
static int within(const char *call, const void *from, size_t bytes, int pinned)
{
    const char *at = from;
    for (int i = 0; i < block_count; i++)
        if (blocks[i].alive && blocks[i].pinned == pinned && at >= blocks[i].at &&
            at + bytes <= blocks[i].at + blocks[i].bytes)
            return 1;
    wrong("%s: %zu bytes are outside of what was allocated %s", call, bytes, pinned ? "and pinned" : "on the GPU");
    return 0;
}

/* -- what is on a stream ------------------------------------------------------------------- */

static void perform(const Work *work)
{
    uint64_t at = work->begin;
    for (int i = 0; i < work->count; i++) {
        const Node *node = &work->nodes[i];
        switch (node->type) {
        case COPY_IN:
        case COPY_OUT:
            at += node->type == COPY_IN ? scene.in : scene.out;
            if (within("a copy on a stream", node->to, node->bytes, node->type == COPY_OUT) &&
                within("a copy on a stream", node->from, node->bytes, node->type == COPY_IN))
                memcpy(node->to, node->from, node->bytes);
            break;
        case KERNEL:
            at += scene.compute;
            if (scene.kernels) {
                void *arguments[8];
                for (int p = 0; p < node->kernel->parameters; p++) {
                    arguments[p] = (void *)&node->parameters[p];
                    if (!within("a kernel", (void *)(uintptr_t)node->parameters[p], 4, 0))
                        return;
                }
                for (int block = 0; block < node->grid; block++)
                    node->kernel->run(block, node->threads, arguments);
            }
            break;
        case RECORD:
            node->event->time = at;
            node->event->pending--;
            break;
        }
    }
    if (work->exec)
        work->exec->pending = 0;
}

static void advance(void)
{
    uint64_t at = now();
    for (int i = 0; i < object_count; i++) {
        Object *stream = objects[i];
        if (stream->kind != STREAM || !stream->alive)
            continue;
        int done = 0;
        while (done < stream->queued && stream->queue[done].due <= at)
            perform(&stream->queue[done++]);
        memmove(stream->queue, stream->queue + done, sizeof(Work) * (size_t)(stream->queued - done));
        stream->queued -= done;
    }
}

static int put(Object *stream, const Node *nodes, int count, Object *exec)
{
    if (stream->queued == 64) {
        wrong("a stream with more than 64 things under way");
        return UNKNOWN;
    }
    Work *work = &stream->queue[stream->queued++];
    uint64_t at = now();
    memcpy(work->nodes, nodes, sizeof(Node) * (size_t)count);
    work->count = count;
    work->exec = exec;
    work->begin = stream->busy_until > at ? stream->busy_until : at;
    work->due = work->begin;
    for (int i = 0; i < count; i++) {
        work->due += nodes[i].type == COPY_IN ? scene.in : 0;
        work->due += nodes[i].type == KERNEL ? scene.compute : 0;
        work->due += nodes[i].type == COPY_OUT ? scene.out : 0;
        if (nodes[i].type == RECORD)
            nodes[i].event->pending++;
    }
    if (exec && launches == scene.hang)
        work->due = NEVER;
    if (stream->busy_until == NEVER)
        work->due = NEVER;
    stream->busy_until = work->due;
    return OK;
}

static int add(Object *stream, Node node)
{
    if (!stream->capture)
        return put(stream, &node, 1, NULL);
    if (stream->capture->count == 16)
        return UNKNOWN;
    stream->capture->nodes[stream->capture->count++] = node;
    return OK;
}

/* -- the driver and its devices ------------------------------------------------------------- */

int cuInit(unsigned flags)
{
    pthread_mutex_lock(&lock);
    read_scene();
    int code = flags ? INVALID_VALUE : (int)number("init", number("devices", 1) ? OK : NO_DEVICE);
    initialised = code == OK;
    return leave(code);
}
int cuDriverGetVersion(int *version)
{
    *version = (int)number("driver", 12040);
    return OK;
}
int cuGetErrorName(int code, const char **name)
{
    static const struct { int code; const char *name; } names[] = {
        {OK, "CUDA_SUCCESS"}, {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"}, {NO_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"}, {NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
        {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"}, {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
        {ECC, "CUDA_ERROR_ECC_UNCORRECTABLE"}, {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"}, {802, "CUDA_ERROR_SYSTEM_NOT_READY"},
        {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}, {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
        {UNKNOWN, "CUDA_ERROR_UNKNOWN"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) {
            *name = names[i].name;
            return OK;
        }
    *name = NULL;
    return INVALID_VALUE;
}
/* For cuda-bindings, which looks all functions up once NVRTC is used, whether it will call them or not. */
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    static const char *const suffixes[] = {"_v2", ""};
    Dl_info own;
    (void)version, (void)flags;
    void *library = dladdr((void *)(uintptr_t)cuInit, &own) ? dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    *function = NULL;
    for (int i = 0; library && i < 2 && !*function; i++) {
        char symbol[128];
        snprintf(symbol, sizeof symbol, "%s%s", name, suffixes[i]);
        *function = dlsym(library, symbol);
    }
    if (status)
        *status = *function ? 0 : 1; /* not found */
    return *function ? OK : NOT_FOUND;
}
/* NVRTC asks for a table of its vendor's own; a driver may not have it. */
int cuGetExportTable(const void **table, const void *which)
{
    (void)which;
    *table = NULL;
    return NOT_FOUND;
}
int cuDeviceGetCount(int *count)
{
    ENTER(0);
    *count = (int)number("devices", 1);
    return leave(OK);
}
int cuDeviceGet(int *device, int ordinal)
{
    ENTER(0);
    *device = 7 + ordinal; /* a handle, not the ordinal */
    return leave(ordinal >= 0 && ordinal < number("devices", 1) ? OK : INVALID_DEVICE);
}
int cuDeviceGetName(char *name, int length, int device)
{
    snprintf(name, (size_t)length, "Fake GPU %d", device - 7);
    return OK;
}
int cuDeviceGetPCIBusId(char *name, int length, int device)
{
    snprintf(name, (size_t)length, "0000:%02X:00.0", device);
    return OK;
}
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    long long capability = number("capability", 80);
    (void)device;
    switch (attribute) {
    case 16: *value = 108; return OK;
    case 38: *value = 40 << 20; return OK;
    case 75: *value = (int)(capability / 10); return OK;
    case 76: *value = (int)(capability % 10); return OK;
    default: wrong("an attribute that this library lacks: %d", attribute); return INVALID_VALUE;
    }
}
int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)number("memory", 85899345920LL);
    return OK;
}
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags)
{
    ENTER(0);
    if (device < 7 || flags != 1)
        wrong("cuDevicePrimaryCtxSetFlags(%d, %u)", device, flags);
    return leave(OK);
}
int cuDevicePrimaryCtxRetain(void **found, int device)
{
    ENTER(0);
    int code = (int)number("retain", device < 7 ? INVALID_DEVICE : OK);
    if (code == OK) {
        context.alive = 1;
        retained++;
        *found = &context;
    }
    return leave(code);
}
int cuDevicePrimaryCtxRelease_v2(int device)
{
    ENTER(0);
    if (device < 7 || retained < 1) {
        wrong("cuDevicePrimaryCtxRelease of a context that is not held");
        return leave(INVALID_CONTEXT);
    }
    if (--retained == 0) {
        for (int i = 0; i < object_count; i++)
            if (objects[i]->alive && objects[i]->kind != FUNCTION)
                wrong("left behind: a %s", kinds[objects[i]->kind]);
        for (int i = 0; i < block_count; i++)
            if (blocks[i].alive)
                wrong("left behind: %zu bytes", blocks[i].bytes);
        context.alive = 0;
    }
    return leave(OK);
}
int cuCtxSetCurrent(void *handle)
{
    ENTER(0);
    if (handle != &context || !context.alive) {
        wrong("cuCtxSetCurrent of no context");
        return leave(INVALID_CONTEXT);
    }
    current = handle;
    return leave(OK);
}
int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER(1);
    *least = 0;
    *greatest = -5;
    return leave(OK);
}

/* -- streams, events, graphs ---------------------------------------------------------------- */

int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
    ENTER(1);
    if (flags != 1 || priority != -5)
        wrong("cuStreamCreateWithPriority(%u, %d): not apart from the default stream, or not first", flags, priority);
    *stream = create(STREAM);
    return leave(OK);
}
int cuStreamDestroy_v2(void *handle)
{
    ENTER(1);
    Object *stream = alive(__func__, handle, STREAM);
    if (!stream)
        return leave(INVALID_HANDLE);
    advance();
    if (stream->queued || stream->capture)
        wrong("cuStreamDestroy of a stream with work on it");
    stream->alive = 0;
    return leave(OK);
}
int cuStreamBeginCapture_v2(void *handle, int mode)
{
    ENTER(1);
    Object *stream = alive(__func__, handle, STREAM);
    if (!stream)
        return leave(INVALID_HANDLE);
    advance();
    if (stream->capture || stream->queued || mode != 1)
        wrong("cuStreamBeginCapture: in a capture, with work under way, or for all threads");
    stream->capture = create(GRAPH);
    return leave(OK);
}
int cuStreamEndCapture(void *handle, void **graph)
{
    ENTER(1);
    Object *stream = alive(__func__, handle, STREAM);
    if (!stream || !stream->capture)
        return leave(INVALID_HANDLE);
    *graph = stream->capture;
    stream->capture = NULL;
    return leave(OK);
}
int cuGraphInstantiateWithFlags(void **exec, void *handle, unsigned long long flags)
{
    ENTER(1);
    Object *graph = alive(__func__, handle, GRAPH);
    int code = (int)number("instantiate", OK);
    if (!graph || flags || code != OK)
        return leave(graph ? code : INVALID_HANDLE);
    Object *made = create(EXEC);
    memcpy(made->nodes, graph->nodes, sizeof graph->nodes);
    made->count = graph->count;
    *exec = made;
    return leave(OK);
}
int cuGraphUpload(void *handle, void *on)
{
    ENTER(1);
    Object *exec = alive(__func__, handle, EXEC), *stream = alive(__func__, on, STREAM);
    return leave(exec && stream ? OK : INVALID_HANDLE);
}
int cuGraphLaunch(void *handle, void *on)
{
    ENTER(1);
    Object *exec = alive(__func__, handle, EXEC), *stream = alive(__func__, on, STREAM);
    if (!exec || !stream)
        return leave(INVALID_HANDLE);
    advance();
    launches++;
    if (launches == scene.launch_at)
        return leave(lost = scene.launch_code);
    if (exec->pending) {
        wrong("cuGraphLaunch of a graph that runs");
        return leave(INVALID_VALUE);
    }
    exec->pending = 1;
    query_armed |= launches == scene.query_at;
    return leave(put(stream, exec->nodes, exec->count, exec));
}
int cuGraphDestroy(void *handle)
{
    ENTER(1);
    Object *graph = alive(__func__, handle, GRAPH);
    if (!graph)
        return leave(INVALID_HANDLE);
    graph->alive = 0;
    return leave(OK);
}
int cuGraphExecDestroy(void *handle)
{
    ENTER(1);
    Object *exec = alive(__func__, handle, EXEC);
    if (!exec)
        return leave(INVALID_HANDLE);
    advance();
    if (exec->pending)
        wrong("cuGraphExecDestroy of a graph that runs");
    exec->alive = 0;
    return leave(OK);
}
int cuEventCreate(void **event, unsigned flags)
{
    ENTER(1);
    Object *made = create(EVENT);
    made->timed = !(flags & 2);
    *event = made;
    return leave(OK);
}
static int record(const char *call, void *handle, void *on, unsigned flags)
{
    Object *event = alive(call, handle, EVENT), *stream = alive(call, on, STREAM);
    if (!event || !stream)
        return INVALID_HANDLE;
    if (!!stream->capture != (flags == 1)) {
        wrong("%s: an event in a capture has to be external, and only there", call);
        return INVALID_VALUE;
    }
    return add(stream, (Node){.type = RECORD, .event = event});
}
int cuEventRecord(void *event, void *stream)
{
    ENTER(1);
    return leave(record(__func__, event, stream, 0));
}
int cuEventRecordWithFlags(void *event, void *stream, unsigned flags)
{
    ENTER(1);
    return leave(record(__func__, event, stream, flags));
}
int cuEventQuery(void *handle)
{
    ENTER(1);
    Object *event = alive(__func__, handle, EVENT);
    if (!event)
        return leave(INVALID_HANDLE);
    if (query_armed)
        return leave(lost = scene.query_code);
    advance();
    return leave(event->pending ? NOT_READY : OK);
}
int cuEventElapsedTime(float *ms, void *first, void *second)
{
    ENTER(1);
    Object *from = alive(__func__, first, EVENT), *to = alive(__func__, second, EVENT);
    if (!from || !to || !from->timed || !to->timed)
        return leave(INVALID_HANDLE);
    if (from->pending || to->pending)
        return leave(NOT_READY);
    *ms = (float)((double)(to->time - from->time) / 1e6);
    return leave(OK);
}
int cuEventDestroy_v2(void *handle)
{
    ENTER(1);
    Object *event = alive(__func__, handle, EVENT);
    if (!event)
        return leave(INVALID_HANDLE);
    advance();
    if (event->pending)
        wrong("cuEventDestroy of an event that is still to come");
    event->alive = 0;
    return leave(OK);
}

/* -- memory --------------------------------------------------------------------------------- */

static char *allocate(size_t bytes, int pinned)
{
    if (bytes == 0 || allocated + bytes > (size_t)scene.allowed)
        return NULL;
    char *at = malloc(bytes);
    memset(at, 0xff, bytes); /* NaNs: what is read before it is written shows */
    allocated += bytes;
    blocks[block_count++] = (Block){at, bytes, 1, pinned};
    return at;
}
static int release(const char *call, void *at, int pinned)
{
    advance();
    for (int i = 0; i < object_count; i++)
        if (objects[i]->kind == STREAM && objects[i]->alive && objects[i]->queued)
            wrong("%s while a stream has work", call);
    for (int i = 0; i < block_count; i++)
        if (blocks[i].alive && blocks[i].at == at && blocks[i].pinned == pinned) {
            blocks[i].alive = 0;
            allocated -= blocks[i].bytes;
            return OK; /* never given back, so that no other block gets its address */
        }
    wrong("%s: no such memory", call);
    return INVALID_VALUE;
}
int cuMemHostAlloc(void **found, size_t bytes, unsigned flags)
{
    ENTER(1);
    if (flags & ~1u)
        wrong("cuMemHostAlloc with flags %u", flags);
    *found = allocate(bytes, 1);
    return leave(*found ? OK : NO_MEMORY);
}
int cuMemFreeHost(void *at)
{
    ENTER(1);
    return leave(release(__func__, at, 1));
}
int cuMemAlloc_v2(uint64_t *found, size_t bytes)
{
    ENTER(1);
    *found = (uint64_t)(uintptr_t)allocate(bytes, 0);
    return leave(*found ? OK : NO_MEMORY);
}
int cuMemFree_v2(uint64_t at)
{
    ENTER(1);
    return leave(release(__func__, (void *)(uintptr_t)at, 0));
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    ENTER(1);
    if (!within(__func__, (void *)(uintptr_t)to, bytes, 0))
        return leave(INVALID_VALUE);
    memcpy((void *)(uintptr_t)to, from, bytes);
    return leave(OK);
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *on)
{
    ENTER(1);
    Object *stream = alive(__func__, on, STREAM);
    if (!stream || !within(__func__, (void *)(uintptr_t)to, bytes, 0) || !within(__func__, from, bytes, 1))
        return leave(stream ? INVALID_VALUE : INVALID_HANDLE);
    return leave(add(stream, (Node){.type = COPY_IN, .to = (void *)(uintptr_t)to, .from = from, .bytes = bytes}));
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *on)
{
    ENTER(1);
    Object *stream = alive(__func__, on, STREAM);
    if (!stream || !within(__func__, to, bytes, 1) || !within(__func__, (void *)(uintptr_t)from, bytes, 0))
        return leave(stream ? INVALID_VALUE : INVALID_HANDLE);
    return leave(add(stream, (Node){.type = COPY_OUT, .to = to, .from = (void *)(uintptr_t)from, .bytes = bytes}));
}

/* -- kernels -------------------------------------------------------------------------------- */

int cuModuleLoadData(void **module, const void *image)
{
    ENTER(1);
    const char *path = getenv("FAKE_CUDA_KERNELS");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    kernels = library ? dlsym(library, "fake_cuda_kernels") : NULL;
    if (!kernels) {
        wrong("FAKE_CUDA_KERNELS names no kernels");
        return leave(UNKNOWN);
    }
    if (memcmp(image, "\x7f" "ELF", 4) && memcmp(image, "//", 2)) /* a cubin, or PTX, which begins with a comment */
        return leave(INVALID_IMAGE);
    *module = create(MODULE);
    return leave(OK);
}
int cuModuleUnload(void *handle)
{
    ENTER(1);
    Object *module = alive(__func__, handle, MODULE);
    if (!module)
        return leave(INVALID_HANDLE);
    module->alive = 0;
    return leave(OK);
}
int cuModuleGetFunction(void **function, void *handle, const char *name)
{
    ENTER(1);
    if (!alive(__func__, handle, MODULE))
        return leave(INVALID_HANDLE);
    for (const FakeKernel *kernel = kernels; kernel->name; kernel++)
        if (!strcmp(kernel->name, name)) {
            Object *made = create(FUNCTION);
            made->kernel = kernel;
            *function = made;
            return leave(OK);
        }
    return leave(NOT_FOUND);
}
int cuLaunchKernel(void *handle, unsigned grid, unsigned grid_y, unsigned grid_z, unsigned threads, unsigned threads_y,
                   unsigned threads_z, unsigned shared, void *on, void **parameters, void **extra)
{
    ENTER(1);
    Object *function = alive(__func__, handle, FUNCTION), *stream = alive(__func__, on, STREAM);
    if (!function || !stream)
        return leave(INVALID_HANDLE);
    if (grid < 1 || grid_y != 1 || grid_z != 1 || threads < 1 || threads > 1024 || threads_y != 1 || threads_z != 1 ||
        shared || !parameters || extra) {
        wrong("cuLaunchKernel: %u x %u", grid, threads);
        return leave(INVALID_VALUE);
    }
    Node node = {.type = KERNEL, .kernel = function->kernel, .grid = (int)grid, .threads = (int)threads};
    for (int i = 0; i < function->kernel->parameters; i++)
        memcpy(&node.parameters[i], parameters[i], 8);
    return leave(add(stream, node));
}
