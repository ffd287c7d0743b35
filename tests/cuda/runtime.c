/* CUDA without a GPU: loaded in front of CUDA's runtime and in place of its driver.

   One device, whose memory is that of the host. What is queued is done at once, so streams and events have nothing to
   do. Kernels cannot run: simulated.py computes every operator before one would be launched, and a launch is an error.
   What torch asks of the runtime and is not here, the real one answers without looking for a device. */

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

/* Read by simulated.py: how often the host was made to wait, and kernels that were launched all the same. */
long simulated_waits = 0, simulated_launches = 0;

#define ANSWER(name, ...) cudaError_t name(__VA_ARGS__)
#define NOTHING_TO_DO(name, ...) ANSWER(name, __VA_ARGS__) { return cudaSuccess; }
#define WAIT(name, ...) ANSWER(name, __VA_ARGS__) { simulated_waits++; return cudaSuccess; }

/* ---- the device ---- */

ANSWER(cudaGetDeviceCount, int *count) { *count = 1; return cudaSuccess; }
ANSWER(cudaGetDevice, int *device) { *device = 0; return cudaSuccess; }
ANSWER(cudaSetDevice, int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
ANSWER(cudaDriverGetVersion, int *version) { *version = CUDART_VERSION; return cudaSuccess; }
ANSWER(cudaDeviceGetStreamPriorityRange, int *least, int *greatest) { *least = *greatest = 0; return cudaSuccess; }
ANSWER(cudaDeviceCanAccessPeer, int *can, int one, int other) { *can = 0; return cudaSuccess; }
NOTHING_TO_DO(cudaGetLastError, void)
NOTHING_TO_DO(cudaPeekAtLastError, void)

ANSWER(cudaGetDeviceProperties, struct cudaDeviceProp *found, int device) { /* of an H100, as far as torch looks */
    memset(found, 0, sizeof *found);
    strcpy(found->name, "simulated");
    found->major = 9;
    found->totalGlobalMem = (size_t)80 << 30;
    found->multiProcessorCount = 132;
    found->warpSize = 32;
    found->maxThreadsPerBlock = 1024;
    found->maxThreadsPerMultiProcessor = 2048;
    found->sharedMemPerBlock = 48 << 10;
    found->regsPerMultiprocessor = 1 << 16;
    for (int axis = 0; axis < 3; axis++) {
        found->maxThreadsDim[axis] = axis < 2 ? 1024 : 64;
        found->maxGridSize[axis] = axis ? 65535 : 2147483647;
    }
    return cudaSuccess;
}
ANSWER(cudaDeviceGetAttribute, int *value, enum cudaDeviceAttr wanted, int device) {
    *value = wanted == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
    return cudaSuccess;
}

/* ---- memory ---- */

static size_t whole(size_t size, size_t block) { return (size + block - 1) / block * block; }

ANSWER(cudaMalloc, void **place, size_t size) {
    *place = aligned_alloc(512, whole(size, 512));
    return *place ? cudaSuccess : cudaErrorMemoryAllocation;
}
ANSWER(cudaFree, void *place) { free(place); return cudaSuccess; }
ANSWER(cudaMemGetInfo, size_t *left, size_t *all) { *left = *all = (size_t)80 << 30; return cudaSuccess; }

static struct { char *start; size_t size; } pinned[4096];
static int number_pinned = 0;

ANSWER(cudaHostAlloc, void **place, size_t size, unsigned flags) {
    *place = number_pinned < 4096 ? aligned_alloc(4096, whole(size, 4096)) : NULL;
    if (!*place) return cudaErrorMemoryAllocation;
    pinned[number_pinned].start = *place;
    pinned[number_pinned++].size = size;
    return cudaSuccess;
}
ANSWER(cudaFreeHost, void *place) {
    for (int i = number_pinned - 1; i >= 0; i--)
        if (pinned[i].start == place) pinned[i] = pinned[--number_pinned];
    free(place);
    return cudaSuccess;
}
ANSWER(cudaPointerGetAttributes, struct cudaPointerAttributes *found, const void *place) {
    memset(found, 0, sizeof *found);
    found->type = cudaMemoryTypeUnregistered;
    for (int i = 0; i < number_pinned; i++)
        if ((char *)place >= pinned[i].start && (char *)place < pinned[i].start + pinned[i].size)
            found->type = cudaMemoryTypeHost;
    return cudaSuccess;
}
ANSWER(cudaMemcpyAsync, void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
    memmove(to, from, size);
    return cudaSuccess;
}
ANSWER(cudaMemcpy, void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    simulated_waits++;
    memmove(to, from, size);
    return cudaSuccess;
}
ANSWER(cudaMemsetAsync, void *place, int value, size_t size, cudaStream_t stream) {
    memset(place, value, size);
    return cudaSuccess;
}

/* ---- queues ---- */

static cudaError_t handle(void **made) { *made = malloc(1); return cudaSuccess; }

ANSWER(cudaStreamCreateWithPriority, cudaStream_t *made, unsigned flags, int priority) { return handle((void **)made); }
ANSWER(cudaEventCreateWithFlags, cudaEvent_t *made, unsigned flags) { return handle((void **)made); }
ANSWER(cudaEventDestroy, cudaEvent_t event) { free(event); return cudaSuccess; }
NOTHING_TO_DO(cudaEventRecord, cudaEvent_t event, cudaStream_t stream)
NOTHING_TO_DO(cudaEventRecordWithFlags, cudaEvent_t event, cudaStream_t stream, unsigned flags)
NOTHING_TO_DO(cudaEventQuery, cudaEvent_t event)
NOTHING_TO_DO(cudaStreamQuery, cudaStream_t stream)
NOTHING_TO_DO(cudaStreamWaitEvent, cudaStream_t stream, cudaEvent_t event, unsigned flags)
NOTHING_TO_DO(cudaThreadExchangeStreamCaptureMode, enum cudaStreamCaptureMode *mode)
WAIT(cudaDeviceSynchronize, void)
WAIT(cudaStreamSynchronize, cudaStream_t stream)
WAIT(cudaEventSynchronize, cudaEvent_t event)
ANSWER(cudaStreamIsCapturing, cudaStream_t stream, enum cudaStreamCaptureStatus *found) {
    *found = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
ANSWER(cudaStreamGetCaptureInfo, cudaStream_t stream, enum cudaStreamCaptureStatus *found, unsigned long long *number,
       cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *count) {
    *found = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

static cudaError_t refused(void) { simulated_launches++; return cudaErrorLaunchFailure; }
ANSWER(cudaLaunchKernel, const void *kernel, dim3 grid, dim3 block, void **given, size_t shared, cudaStream_t stream) {
    return refused();
}
ANSWER(cudaLaunchKernelExC, const cudaLaunchConfig_t *how, const void *kernel, void **given) { return refused(); }

/* ---- the driver ---- */

static int has_context(int device, unsigned *flags, int *active) { *flags = 0; *active = 1; return 0; }
static int done(void) { return 0; }

ANSWER(cudaGetDriverEntryPointByVersion, const char *name, void **found, unsigned version, unsigned long long flags,
       enum cudaDriverEntryPointQueryResult *how) {
    *found = strcmp(name, "cuDevicePrimaryCtxGetState") ? (void *)done : (void *)has_context;
    if (how) *how = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
int cuInit(unsigned flags) { return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return has_context(device, flags, active); }
