// Holds the function types of cuda_driver.hpp against cuda.h: as many parameters, each of one size and kind. Compiled
// by tests/unit/validate/test_gpu.py where there is a cuda.h; that it compiles is the test.

#include <cuda.h>
#include <type_traits>

#include "hwtune/cuda_driver.hpp"

template <class T> constexpr bool number = std::is_integral_v<T> || std::is_enum_v<T>;

template <class A, class B>
constexpr bool alike = sizeof(A) == sizeof(B) &&
                       ((std::is_pointer_v<A> && std::is_pointer_v<B>) || (number<A> && number<B>) ||
                        std::is_same_v<A, B>);

template <class Ours, class Theirs> struct Same : std::false_type {};
template <class R, class... A, class S, class... B> struct Same<R (*)(A...), S (*)(B...)> {
    static constexpr bool value = [] {
        if constexpr (sizeof...(A) == sizeof...(B)) {
            return alike<R, S> && (alike<A, B> && ...);
        } else {
            return false;
        }
    }();
};

#define SAME(member, function) \
    static_assert(Same<decltype(hwtune::cuda::Api::member), decltype(&function)>::value, #function)

// cuda.h's macros give each name its version; cuEventElapsedTime's second version came with CUDA 12.8.
SAME(init, cuInit);
SAME(driver_version, cuDriverGetVersion);
SAME(error_name, cuGetErrorName);
SAME(device_count, cuDeviceGetCount);
SAME(device, cuDeviceGet);
SAME(device_name, cuDeviceGetName);
SAME(device_attribute, cuDeviceGetAttribute);
SAME(device_memory, cuDeviceTotalMem);
SAME(device_pci, cuDeviceGetPCIBusId);
SAME(primary_flags, cuDevicePrimaryCtxSetFlags);
SAME(primary_retain, cuDevicePrimaryCtxRetain);
SAME(primary_release, cuDevicePrimaryCtxRelease);
SAME(set_current, cuCtxSetCurrent);
SAME(priorities, cuCtxGetStreamPriorityRange);
SAME(stream_create, cuStreamCreateWithPriority);
SAME(stream_destroy, cuStreamDestroy);
SAME(capture_begin, cuStreamBeginCapture);
SAME(capture_end, cuStreamEndCapture);
SAME(graph_instantiate, cuGraphInstantiateWithFlags);
SAME(graph_upload, cuGraphUpload);
SAME(graph_launch, cuGraphLaunch);
SAME(graph_destroy, cuGraphDestroy);
SAME(exec_destroy, cuGraphExecDestroy);
SAME(event_create, cuEventCreate);
SAME(event_record, cuEventRecord);
SAME(event_record_flags, cuEventRecordWithFlags);
SAME(event_query, cuEventQuery);
SAME(event_elapsed, cuEventElapsedTime);
SAME(event_destroy, cuEventDestroy);
SAME(host_alloc, cuMemHostAlloc);
SAME(host_free, cuMemFreeHost);
SAME(alloc, cuMemAlloc);
SAME(free, cuMemFree);
SAME(copy_in, cuMemcpyHtoD);
SAME(copy_in_async, cuMemcpyHtoDAsync);
SAME(copy_out_async, cuMemcpyDtoHAsync);
SAME(module_load, cuModuleLoadData);
SAME(module_unload, cuModuleUnload);
SAME(module_function, cuModuleGetFunction);
SAME(launch, cuLaunchKernel);

using namespace hwtune::cuda;
static_assert(success == CUDA_SUCCESS && out_of_memory == CUDA_ERROR_OUT_OF_MEMORY && no_device == CUDA_ERROR_NO_DEVICE);
static_assert(device_unavailable == CUDA_ERROR_DEVICE_UNAVAILABLE && no_binary == CUDA_ERROR_NO_BINARY_FOR_GPU);
static_assert(ecc_uncorrectable == CUDA_ERROR_ECC_UNCORRECTABLE && unsupported_ptx == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
static_assert(not_ready == CUDA_ERROR_NOT_READY && system_not_ready == CUDA_ERROR_SYSTEM_NOT_READY);
static_assert(driver_mismatch == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH && schedule_spin == CU_CTX_SCHED_SPIN);
static_assert(stream_non_blocking == CU_STREAM_NON_BLOCKING && event_timing == CU_EVENT_DEFAULT);
static_assert(event_no_timing == CU_EVENT_DISABLE_TIMING && record_external == CU_EVENT_RECORD_EXTERNAL);
static_assert(capture_thread_local == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && host_portable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(int(Attribute::multiprocessors) == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(int(Attribute::l2_bytes) == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
static_assert(int(Attribute::major) == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(int(Attribute::minor) == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
