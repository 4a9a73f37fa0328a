// The CUDA driver API, by dlopen of libcuda.so.1: neither building nor starting hwtune needs CUDA. Names and signatures
// are those of cuda.h 13.5, with the symbols that its macros stand for (cuMemAlloc is cuMemAlloc_v2 and so on); each of
// them is in every driver from CUDA 11.4 on. tests/native/cuda_abi.cpp holds them against cuda.h where there is one.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <dlfcn.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace hwtune::cuda {

using Result = int; // CUresult
using DevicePointer = std::uint64_t; // CUdeviceptr
using Handle = void *;

inline constexpr Result success = 0;
inline constexpr Result out_of_memory = 2;
inline constexpr Result device_unavailable = 46;
inline constexpr Result no_device = 100;
inline constexpr Result no_binary = 209;
inline constexpr Result ecc_uncorrectable = 214;
inline constexpr Result unsupported_ptx = 222;
inline constexpr Result not_ready = 600;
inline constexpr Result system_not_ready = 802;
inline constexpr Result driver_mismatch = 803;

inline constexpr unsigned schedule_spin = 1;        // CU_CTX_SCHED_SPIN
inline constexpr unsigned stream_non_blocking = 1;  // CU_STREAM_NON_BLOCKING: apart from the default stream
inline constexpr unsigned event_timing = 0;         // CU_EVENT_DEFAULT
inline constexpr unsigned event_no_timing = 2;      // CU_EVENT_DISABLE_TIMING
inline constexpr unsigned record_external = 1;      // CU_EVENT_RECORD_EXTERNAL: in a capture, a node of the graph
inline constexpr int capture_thread_local = 1;      // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
inline constexpr unsigned host_portable = 1;        // CU_MEMHOSTALLOC_PORTABLE

enum class Attribute : int { multiprocessors = 16, l2_bytes = 38, major = 75, minor = 76 };

// What is wrong, for those errors whose name alone does not tell what to do; else "".
[[nodiscard]] constexpr std::string_view advice(Result code) noexcept {
    switch (code) {
    case out_of_memory: return "the GPU's memory, or what may be pinned of the host's, is used up";
    case device_unavailable: return "another process holds the GPU alone (compute mode exclusive)";
    case no_device: return "there is no GPU that CUDA may use here";
    case no_binary:
    case unsupported_ptx: return "the code is for a newer driver or another GPU";
    case ecc_uncorrectable: return "the GPU's memory has an error that ECC could not mend; see its Xid in dmesg";
    case system_not_ready: return "the NVSwitch fabric is not up: is nvidia-fabricmanager running?";
    case driver_mismatch: return "the driver's library and its kernel module are of two versions: reload it, or reboot";
    default: return {};
    }
}

// A call that the driver refused: one sentence.
class Error : public std::runtime_error {
  public:
    Error(Result code, const std::string &sentence) : std::runtime_error(sentence), code_(code) {}
    [[nodiscard]] Result code() const noexcept { return code_; }

  private:
    Result code_;
};

// Every function that is used here.
struct Api {
    Result (*init)(unsigned);
    Result (*driver_version)(int *);
    Result (*error_name)(Result, const char **);
    Result (*device_count)(int *);
    Result (*device)(int *, int);
    Result (*device_name)(char *, int, int);
    Result (*device_attribute)(int *, int, int);
    Result (*device_memory)(std::size_t *, int);
    Result (*device_pci)(char *, int, int);
    Result (*primary_flags)(int, unsigned);
    Result (*primary_retain)(Handle *, int);
    Result (*primary_release)(int);
    Result (*set_current)(Handle);
    Result (*priorities)(int *, int *);
    Result (*stream_create)(Handle *, unsigned, int);
    Result (*stream_destroy)(Handle);
    Result (*capture_begin)(Handle, int);
    Result (*capture_end)(Handle, Handle *);
    Result (*graph_instantiate)(Handle *, Handle, unsigned long long);
    Result (*graph_upload)(Handle, Handle);
    Result (*graph_launch)(Handle, Handle);
    Result (*graph_destroy)(Handle);
    Result (*exec_destroy)(Handle);
    Result (*event_create)(Handle *, unsigned);
    Result (*event_record)(Handle, Handle);
    Result (*event_record_flags)(Handle, Handle, unsigned);
    Result (*event_query)(Handle);
    Result (*event_elapsed)(float *, Handle, Handle);
    Result (*event_destroy)(Handle);
    Result (*host_alloc)(void **, std::size_t, unsigned);
    Result (*host_free)(void *);
    Result (*alloc)(DevicePointer *, std::size_t);
    Result (*free)(DevicePointer);
    Result (*copy_in)(DevicePointer, const void *, std::size_t); // waits for its end
    Result (*copy_in_async)(DevicePointer, const void *, std::size_t, Handle);
    Result (*copy_out_async)(void *, DevicePointer, std::size_t, Handle);
    Result (*module_load)(Handle *, const void *);
    Result (*module_unload)(Handle);
    Result (*module_function)(Handle *, Handle, const char *);
    Result (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **);
};

// Calls use(member, name) for each function of an Api.
template <class A, class Use> void each(A &api, Use &&use) {
    use(api.init, "cuInit");
    use(api.driver_version, "cuDriverGetVersion");
    use(api.error_name, "cuGetErrorName");
    use(api.device_count, "cuDeviceGetCount");
    use(api.device, "cuDeviceGet");
    use(api.device_name, "cuDeviceGetName");
    use(api.device_attribute, "cuDeviceGetAttribute");
    use(api.device_memory, "cuDeviceTotalMem_v2");
    use(api.device_pci, "cuDeviceGetPCIBusId");
    use(api.primary_flags, "cuDevicePrimaryCtxSetFlags_v2");
    use(api.primary_retain, "cuDevicePrimaryCtxRetain");
    use(api.primary_release, "cuDevicePrimaryCtxRelease_v2");
    use(api.set_current, "cuCtxSetCurrent");
    use(api.priorities, "cuCtxGetStreamPriorityRange");
    use(api.stream_create, "cuStreamCreateWithPriority");
    use(api.stream_destroy, "cuStreamDestroy_v2");
    use(api.capture_begin, "cuStreamBeginCapture_v2");
    use(api.capture_end, "cuStreamEndCapture");
    use(api.graph_instantiate, "cuGraphInstantiateWithFlags");
    use(api.graph_upload, "cuGraphUpload");
    use(api.graph_launch, "cuGraphLaunch");
    use(api.graph_destroy, "cuGraphDestroy");
    use(api.exec_destroy, "cuGraphExecDestroy");
    use(api.event_create, "cuEventCreate");
    use(api.event_record, "cuEventRecord");
    use(api.event_record_flags, "cuEventRecordWithFlags");
    use(api.event_query, "cuEventQuery");
    use(api.event_elapsed, "cuEventElapsedTime");
    use(api.event_destroy, "cuEventDestroy_v2");
    use(api.host_alloc, "cuMemHostAlloc");
    use(api.host_free, "cuMemFreeHost");
    use(api.alloc, "cuMemAlloc_v2");
    use(api.free, "cuMemFree_v2");
    use(api.copy_in, "cuMemcpyHtoD_v2");
    use(api.copy_in_async, "cuMemcpyHtoDAsync_v2");
    use(api.copy_out_async, "cuMemcpyDtoHAsync_v2");
    use(api.module_load, "cuModuleLoadData");
    use(api.module_unload, "cuModuleUnload");
    use(api.module_function, "cuModuleGetFunction");
    use(api.launch, "cuLaunchKernel");
}

// The library, initialised. It stays loaded, as it has threads of its own.
class Driver {
  public:
    static constexpr const char *usual = "libcuda.so.1";

    // Throws std::runtime_error where there is no driver, or one that is too old; Error where it can't start.
    explicit Driver(const std::string &path = usual) {
        void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            throw std::runtime_error("there is no NVIDIA driver here: " + std::string(dlerror()));
        }
        each(api_, [&](auto &function, const char *name) {
            void *found = dlsym(library, name);
            if (found == nullptr) {
                throw std::runtime_error("the NVIDIA driver is too old, or " + path + " is none: it has no " +
                                         std::string(name) + ", which CUDA 11.4 and later have");
            }
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
        });
        check(api_.init(0), "cuInit");
        check(api_.driver_version(&version_), "cuDriverGetVersion");
    }

    [[nodiscard]] const Api *operator->() const noexcept { return &api_; }
    // The newest CUDA that it serves: 12040 is 12.4.
    [[nodiscard]] int version() const noexcept { return version_; }

    // "cuGraphLaunch: CUDA_ERROR_LAUNCH_FAILED (719)", with advice where there is some.
    [[nodiscard]] std::string sentence(Result code, const std::string &call) const {
        const char *name = nullptr;
        if (api_.error_name(code, &name) != success || name == nullptr) {
            name = "an error without a name";
        }
        std::string told = call + ": " + name + " (" + std::to_string(code) + ")";
        if (const std::string_view hint = advice(code); !hint.empty()) {
            told += ": " + std::string(hint);
        }
        return told;
    }
    void check(Result code, const std::string &call) const {
        if (code != success) {
            throw Error(code, sentence(code, call));
        }
    }

  private:
    Api api_{};
    int version_ = 0;
};

struct DeviceInfo {
    std::string name;
    std::string pci; // 0000:07:00.0
    int major = 0;   // compute capability
    int minor = 0;
    int driver = 0; // CUDA version that the driver serves
    int multiprocessors = 0;
    std::size_t l2_bytes = 0;
    std::size_t memory_bytes = 0;
};

// What the driver tells of a GPU, without a context on it. Throws std::invalid_argument for one that isn't there.
[[nodiscard]] inline DeviceInfo describe(const Driver &driver, int ordinal, int *handle = nullptr) {
    int count = 0;
    driver.check(driver->device_count(&count), "cuDeviceGetCount");
    if (count == 0) {
        throw Error(no_device, "there is no GPU that CUDA may use here");
    }
    if (ordinal < 0 || ordinal >= count) {
        throw std::invalid_argument("there is no GPU " + std::to_string(ordinal) + ": CUDA sees " +
                                    std::to_string(count));
    }
    int device = 0;
    driver.check(driver->device(&device, ordinal), "cuDeviceGet");
    std::array<char, 256> text{};
    DeviceInfo info;
    driver.check(driver->device_name(text.data(), static_cast<int>(text.size()), device), "cuDeviceGetName");
    info.name = text.data();
    driver.check(driver->device_pci(text.data(), static_cast<int>(text.size()), device), "cuDeviceGetPCIBusId");
    info.pci = text.data();
    const auto attribute = [&](Attribute which) {
        int value = 0;
        driver.check(driver->device_attribute(&value, static_cast<int>(which), device), "cuDeviceGetAttribute");
        return value;
    };
    info.major = attribute(Attribute::major);
    info.minor = attribute(Attribute::minor);
    info.multiprocessors = attribute(Attribute::multiprocessors);
    info.l2_bytes = static_cast<std::size_t>(attribute(Attribute::l2_bytes));
    driver.check(driver->device_memory(&info.memory_bytes, device), "cuDeviceTotalMem");
    info.driver = driver.version();
    if (handle != nullptr) {
        *handle = device;
    }
    return info;
}

// A GPU's primary context, which the runtime API (and so TensorRT) uses too. A thread makes it current before it asks
// anything of the GPU.
class Device {
  public:
    Device(Driver driver, int ordinal) : driver_(driver), info_(describe(driver_, ordinal, &device_)) {
        // Refused where somebody in this process has it already with other flags: its own then stay.
        static_cast<void>(driver_->primary_flags(device_, schedule_spin));
        driver_.check(driver_->primary_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
    }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;
    ~Device() {
        if (context_ != nullptr) {
            static_cast<void>(driver_->primary_release(device_));
        }
    }

    [[nodiscard]] const Driver &driver() const noexcept { return driver_; }
    [[nodiscard]] const DeviceInfo &info() const noexcept { return info_; }
    [[nodiscard]] Result make_current() const noexcept { return driver_->set_current(context_); }
    // Nothing is asked of the driver any more, also not to let go: a GPU that hangs may keep any call waiting.
    void abandon() noexcept { context_ = nullptr; }

  private:
    Driver driver_;
    int device_ = 0;
    DeviceInfo info_;
    Handle context_ = nullptr;
};

} // namespace hwtune::cuda
