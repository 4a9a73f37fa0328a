// Inference on a GPU behind the engine's seam. For each number of rows that is asked for there is one CUDA graph a slot:
//
//     pinned host input -> device -> the model's kernels -> pinned host output
//
// with addresses that never change, on a stream of the slot's own. submit() launches it, poll() asks an event. What the
// kernels are is somebody else's (GpuWork), who puts them on a stream while it is captured.
//
// A graph that runs is never launched again before its end (cuGraphLaunch: "Only one instance of hGraphExec may be
// executing at a time"): a slot has one batch under way at most, and its graphs are its own.
//
// A GPU may never answer. Everything that waits has a deadline; after a failure nothing more is asked of the driver, not
// even to free memory, as any call could wait for ever. The end of the process frees it.

#pragma once

#include "hwtune/affinity.hpp"
#include "hwtune/clock.hpp"
#include "hwtune/cuda_driver.hpp"
#include "hwtune/engine.hpp"
#include "hwtune/histogram.hpp"
#include "hwtune/poll.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace hwtune {

// What a device has written before it told of its end is read after this, and not before (as Linux's dma_rmb()).
inline void read_after_device() noexcept {
#if defined(__aarch64__)
    asm volatile("dmb oshld" ::: "memory");
#else
    asm volatile("" ::: "memory"); // x86-64 reads in order
#endif
}

// What computes scores from rows, on the GPU.
class GpuWork {
  public:
    GpuWork() = default;
    GpuWork(const GpuWork &) = delete;
    GpuWork &operator=(const GpuWork &) = delete;
    virtual ~GpuWork() = default;

    // Puts it on the stream, for `rows` rows of feature_width floats at `input` and as many floats at `output`; waits
    // for nothing. Called once as it is, then once in a capture. Throws what it likes.
    virtual void enqueue(cuda::Handle stream, std::size_t slot, std::size_t rows, cuda::DevicePointer input,
                         cuda::DevicePointer output) = 0;
    // The GPU is lost: nothing may be asked of it, also not by the destructor.
    virtual void abandon() noexcept = 0;
};

struct GpuPlan {
    std::string name = "gpu";
    std::vector<std::size_t> sizes{1}; // rows of each graph, ascending; a batch takes the first that holds it
    std::size_t streams = 1;           // batches under way at once
    std::chrono::nanoseconds deadline{std::chrono::seconds(2)};
    int near_cpu = -1; // pinned memory is taken from this CPU's node
};

class GpuEngine final : public Engine {
  public:
    static constexpr std::size_t max_rows = 1024;
    static constexpr std::size_t max_streams = 16;

    // Throws std::invalid_argument for a plan that can't be, cuda::Error for what the driver refuses, and what the work
    // throws.
    GpuEngine(std::shared_ptr<cuda::Device> device, std::unique_ptr<GpuWork> work, GpuPlan plan, Clock clock)
        : device_(std::move(device)), work_(std::move(work)), plan_(checked(std::move(plan))), clock_(std::move(clock)),
          deadline_ticks_(static_cast<std::uint64_t>(static_cast<double>(plan_.deadline.count()) / clock_.ns_per_tick)) {
        for (std::size_t rows = 0, which = 0; rows <= plan_.sizes.back(); ++rows) {
            which += rows > plan_.sizes[which] ? 1U : 0U;
            graph_of_.push_back(which);
        }
        slots_.resize(plan_.streams);
        try {
            build();
        } catch (...) {
            tear_down();
            throw;
        }
    }
    ~GpuEngine() override { tear_down(); }

    [[nodiscard]] std::string name() const override { return plan_.name; }
    [[nodiscard]] std::size_t max_batch() const noexcept override { return plan_.sizes.back(); }
    [[nodiscard]] std::size_t slots() const noexcept override { return slots_.size(); }
    [[nodiscard]] float *input(std::size_t slot) noexcept override { return slots_[slot].host_in; }
    [[nodiscard]] const float *output(std::size_t slot) const noexcept override { return slots_[slot].host_out; }

    void attach() noexcept override {
        if (const cuda::Result code = device_->make_current(); code != cuda::success) {
            fail("cuCtxSetCurrent", code);
        }
    }
    void measured() noexcept override {
        launch_.clear();
        wait_.clear();
    }

    void submit(std::size_t which, std::size_t rows) noexcept override {
        if (rows == 0 || failed()) {
            return;
        }
        Slot &slot = slots_[which];
        const std::uint64_t begun = clock_.ticks();
        cuda::Result code = api().graph_launch(slot.graphs[graph_of_[std::min(rows, max_batch())]], slot.stream);
        if (code != cuda::success) {
            fail("cuGraphLaunch", code);
            return;
        }
        code = api().event_record(slot.done, slot.stream);
        if (code != cuda::success) {
            fail("cuEventRecord", code);
            return;
        }
        slot.launched = clock_.ticks();
        slot.under_way = true;
        launch_.record(nanoseconds(begun, slot.launched));
    }

    [[nodiscard]] Status poll(std::size_t which) noexcept override {
        Slot &slot = slots_[which];
        const bool asked = slot.under_way && !failed();
        const Status status = ask(slot);
        if (asked && status == Status::done) {
            wait_.record(nanoseconds(slot.launched, clock_.ticks()));
        }
        return status;
    }

    [[nodiscard]] std::string error() const override {
        if (!failed()) {
            return {};
        }
        if (failure_ == cuda::not_ready) {
            return "the GPU did not answer within " + std::to_string(plan_.deadline.count() / 1'000'000) +
                   " ms: it hangs, or somebody else keeps it busy (an Xid in dmesg would tell)";
        }
        return device_->driver().sentence(failure_, failed_call_);
    }

    // Nanoseconds, since the measured section began: in the calls that launch, and from then until the answer was seen.
    [[nodiscard]] const Histogram &launch() const noexcept { return launch_; }
    [[nodiscard]] const Histogram &wait() const noexcept { return wait_; }
    [[nodiscard]] const cuda::DeviceInfo &device() const noexcept { return device_->info(); }
    [[nodiscard]] const std::vector<std::size_t> &sizes() const noexcept { return plan_.sizes; }

    struct Parts {
        float in_us = 0;
        float compute_us = 0;
        float out_us = 0;
    };
    // Times of the parts on the GPU, `rounds` times: the graph of that many rows once more, with event nodes between
    // (they take time themselves, so this is no part of a measured run). Throws cuda::Error, std::runtime_error where
    // the GPU does not answer.
    [[nodiscard]] std::vector<Parts> profile(std::size_t rows, std::size_t rounds) {
        const std::size_t size = plan_.sizes[graph_of_.at(rows)];
        std::vector<Parts> all(rounds);
        if (failed()) {
            throw std::runtime_error(error());
        }
        check(device_->make_current(), "cuCtxSetCurrent");
        Slot &slot = slots_.front();
        std::array<cuda::Handle, 4> events{};
        cuda::Handle exec = nullptr;
        try {
            for (cuda::Handle &event : events) {
                check(api().event_create(&event, cuda::event_timing), "cuEventCreate");
            }
            exec = capture(0, size, &events);
            for (Parts &parts : all) {
                check(api().graph_launch(exec, slot.stream), "cuGraphLaunch");
                wait_for(slot);
                const auto between = [&](std::size_t from) {
                    float ms = 0;
                    check(api().event_elapsed(&ms, events[from], events[from + 1]), "cuEventElapsedTime");
                    return ms * 1000;
                };
                parts = {between(0), between(1), between(2)};
            }
        } catch (...) {
            release(exec, events);
            throw;
        }
        release(exec, events);
        return all;
    }

    // Microseconds by the host's clock from the launch of a graph with nothing in it until its end was seen, `rounds`
    // times: no batch takes less on this machine. Throws as profile() does.
    [[nodiscard]] std::vector<double> floor(std::size_t rounds) {
        if (failed()) {
            throw std::runtime_error(error());
        }
        check(device_->make_current(), "cuCtxSetCurrent");
        std::vector<double> all(rounds);
        Slot &slot = slots_.front();
        const cuda::Handle exec = captured(slot.stream, [] {});
        try {
            for (double &us : all) {
                const std::uint64_t begun = clock_.ticks();
                check(api().graph_launch(exec, slot.stream), "cuGraphLaunch");
                wait_for(slot);
                us = clock_.ns(clock_.ticks() - begun) / 1000;
            }
        } catch (...) {
            release(exec, {});
            throw;
        }
        release(exec, {});
        return all;
    }

  private:
    struct Slot {
        cuda::Handle stream = nullptr;
        cuda::Handle done = nullptr;
        std::vector<cuda::Handle> graphs; // one for each of the plan's sizes
        float *host_in = nullptr;
        float *host_out = nullptr;
        cuda::DevicePointer in = 0;
        cuda::DevicePointer out = 0;
        std::uint64_t launched = 0;
        bool under_way = false;
    };

    [[nodiscard]] static GpuPlan checked(GpuPlan plan) {
        const auto &sizes = plan.sizes;
        if (sizes.empty() || sizes.front() < 1 || sizes.back() > max_rows ||
            std::adjacent_find(sizes.begin(), sizes.end(), std::greater_equal<>()) != sizes.end()) {
            throw std::invalid_argument("the GPU engine takes batches of 1 to 1,024 rows, in ascending order");
        }
        if (plan.streams < 1 || plan.streams > max_streams) {
            throw std::invalid_argument("the GPU engine takes 1 to 16 streams");
        }
        if (plan.deadline.count() <= 0) {
            throw std::invalid_argument("the GPU's deadline must be above 0");
        }
        return plan;
    }

    [[nodiscard]] const cuda::Api &api() const noexcept { return *device_->driver().operator->(); }
    [[nodiscard]] bool failed() const noexcept { return failed_call_ != nullptr; }
    void check(cuda::Result code, const char *call) {
        if (code != cuda::success) {
            fail(call, code);
            device_->driver().check(code, call);
        }
    }
    void fail(const char *call, cuda::Result code) noexcept {
        if (!failed()) {
            failed_call_ = call;
            failure_ = code;
        }
    }
    [[nodiscard]] std::uint64_t nanoseconds(std::uint64_t from, std::uint64_t to) const noexcept {
        return to > from ? static_cast<std::uint64_t>(clock_.ns(to - from)) : 0;
    }

    [[nodiscard]] Status ask(Slot &slot) noexcept {
        if (failed()) {
            return Status::failed;
        }
        if (!slot.under_way) {
            return Status::done;
        }
        const cuda::Result code = api().event_query(slot.done);
        if (code == cuda::success) {
            read_after_device();
            slot.under_way = false;
            return Status::done;
        }
        if (code != cuda::not_ready) {
            fail("cuEventQuery", code);
            return Status::failed;
        }
        if (const std::uint64_t now = clock_.ticks(); now > slot.launched && now - slot.launched > deadline_ticks_) {
            fail("cuEventQuery", cuda::not_ready);
            return Status::failed;
        }
        return Status::busy;
    }

    void build() {
        std::optional<Pinned> near;
        if (plan_.near_cpu >= 0) {
            near.emplace(plan_.near_cpu);
        }
        check(device_->make_current(), "cuCtxSetCurrent");
        int lowest = 0;
        int highest = 0; // numerically the lowest
        check(api().priorities(&lowest, &highest), "cuCtxGetStreamPriorityRange");
        for (Slot &slot : slots_) {
            make(slot, highest);
        }
        near.reset();
        for (std::size_t which = 0; which < slots_.size(); ++which) {
            Slot &slot = slots_[which];
            for (const std::size_t size : plan_.sizes) {
                // What a model does at its first run with these shapes is no part of a graph.
                enqueue(which, size, nullptr);
                wait_for(slot);
                slot.graphs.push_back(capture(which, size, nullptr));
                check(api().graph_upload(slot.graphs.back(), slot.stream), "cuGraphUpload");
                check(api().graph_launch(slot.graphs.back(), slot.stream), "cuGraphLaunch");
                wait_for(slot);
            }
        }
    }

    void make(Slot &slot, int priority) {
        const std::size_t rows_bytes = max_batch() * feature_width * sizeof(float);
        const std::size_t scores_bytes = max_batch() * sizeof(float);
        check(api().stream_create(&slot.stream, cuda::stream_non_blocking, priority), "cuStreamCreateWithPriority");
        check(api().event_create(&slot.done, cuda::event_no_timing), "cuEventCreate");
        slot.host_in = pinned(rows_bytes);
        slot.host_out = pinned(scores_bytes);
        check(api().alloc(&slot.in, rows_bytes), "cuMemAlloc");
        check(api().alloc(&slot.out, scores_bytes), "cuMemAlloc");
    }

    [[nodiscard]] float *pinned(std::size_t bytes) {
        void *found = nullptr;
        check(api().host_alloc(&found, bytes, cuda::host_portable), "cuMemHostAlloc");
        std::fill_n(static_cast<float *>(found), bytes / sizeof(float), 0.0F);
        return static_cast<float *>(found);
    }

    // The whole way onto the slot's stream; with events, one before and after each part.
    void enqueue(std::size_t which, std::size_t rows, const std::array<cuda::Handle, 4> *events) {
        Slot &slot = slots_[which];
        const auto mark = [&](std::size_t at) {
            if (events != nullptr) {
                check(api().event_record_flags((*events)[at], slot.stream, cuda::record_external),
                      "cuEventRecordWithFlags");
            }
        };
        mark(0);
        check(api().copy_in_async(slot.in, slot.host_in, rows * feature_width * sizeof(float), slot.stream),
              "cuMemcpyHtoDAsync");
        mark(1);
        work_->enqueue(slot.stream, which, rows, slot.in, slot.out);
        mark(2);
        check(api().copy_out_async(slot.host_out, slot.out, rows * sizeof(float), slot.stream), "cuMemcpyDtoHAsync");
        mark(3);
    }

    [[nodiscard]] cuda::Handle capture(std::size_t which, std::size_t rows, const std::array<cuda::Handle, 4> *events) {
        return captured(slots_[which].stream, [&] { enqueue(which, rows, events); });
    }

    // A graph of what `put` puts on the stream.
    template <class Put> [[nodiscard]] cuda::Handle captured(cuda::Handle stream, Put &&put) {
        check(api().capture_begin(stream, cuda::capture_thread_local), "cuStreamBeginCapture");
        cuda::Handle graph = nullptr;
        try {
            put();
        } catch (...) { // a capture is ended whatever became of it
            if (api().capture_end(stream, &graph) == cuda::success && graph != nullptr) {
                static_cast<void>(api().graph_destroy(graph));
            }
            throw;
        }
        check(api().capture_end(stream, &graph), "cuStreamEndCapture");
        cuda::Handle exec = nullptr;
        const cuda::Result code = api().graph_instantiate(&exec, graph, 0);
        static_cast<void>(api().graph_destroy(graph));
        check(code, "cuGraphInstantiate");
        return exec;
    }

    // For all that is on the slot's stream. Throws where it fails or takes too long.
    void wait_for(Slot &slot) {
        check(api().event_record(slot.done, slot.stream), "cuEventRecord");
        slot.launched = clock_.ticks();
        slot.under_way = true;
        wait_out(slot);
        if (failed()) {
            if (failure_ == cuda::not_ready) {
                throw std::runtime_error(error());
            }
            throw cuda::Error(failure_, error());
        }
    }
    void wait_out(Slot &slot) noexcept {
        while (ask(slot) == Status::busy) {
            cpu_pause();
        }
    }

    void release(cuda::Handle exec, const std::array<cuda::Handle, 4> &events) noexcept {
        if (failed()) {
            return;
        }
        if (exec != nullptr) {
            static_cast<void>(api().exec_destroy(exec));
        }
        for (const cuda::Handle event : events) {
            if (event != nullptr) {
                static_cast<void>(api().event_destroy(event));
            }
        }
    }

    void tear_down() noexcept {
        if (!failed() || failure_ == cuda::out_of_memory) {
            attach();
        }
        for (Slot &slot : slots_) { // whatever a run or the work may have left there
            if (!failed() && slot.stream != nullptr && slot.done != nullptr &&
                api().event_record(slot.done, slot.stream) == cuda::success) {
                slot.launched = clock_.ticks();
                slot.under_way = true;
                wait_out(slot);
            }
        }
        // What was refused for want of memory, or a plan, or by the work, leaves a GPU that answers.
        if (failed() && failure_ != cuda::out_of_memory) {
            work_->abandon();
            device_->abandon();
            return;
        }
        for (Slot &slot : slots_) {
            for (const cuda::Handle graph : slot.graphs) {
                static_cast<void>(api().exec_destroy(graph));
            }
            if (slot.done != nullptr) {
                static_cast<void>(api().event_destroy(slot.done));
            }
            if (slot.stream != nullptr) {
                static_cast<void>(api().stream_destroy(slot.stream));
            }
            for (float *host : {slot.host_in, slot.host_out}) {
                if (host != nullptr) {
                    static_cast<void>(api().host_free(host));
                }
            }
            for (const cuda::DevicePointer device : {slot.in, slot.out}) {
                if (device != 0) {
                    static_cast<void>(api().free(device));
                }
            }
        }
    }

    std::shared_ptr<cuda::Device> device_;
    std::unique_ptr<GpuWork> work_;
    GpuPlan plan_;
    Clock clock_;
    std::uint64_t deadline_ticks_;
    std::vector<std::size_t> graph_of_; // index: rows
    std::vector<Slot> slots_;
    Histogram launch_;
    Histogram wait_;
    const char *failed_call_ = nullptr;
    cuda::Result failure_ = cuda::success;
};

// The reference perceptron as one kernel, compiled elsewhere: a block of `threads` threads for each row, which takes
// the rows, the scores and the parameters.
class KernelWork final : public GpuWork {
  public:
    KernelWork(std::shared_ptr<cuda::Device> device, const std::string &image, const std::string &kernel,
               const std::string &parameters, unsigned threads)
        : device_(std::move(device)), threads_(threads) {
        const cuda::Driver &driver = device_->driver();
        driver.check(device_->make_current(), "cuCtxSetCurrent");
        driver.check(driver->module_load(&module_, image.data()), "cuModuleLoadData");
        try {
            driver.check(driver->module_function(&function_, module_, kernel.c_str()), "cuModuleGetFunction");
            driver.check(driver->alloc(&parameters_, parameters.size()), "cuMemAlloc");
            driver.check(driver->copy_in(parameters_, parameters.data(), parameters.size()), "cuMemcpyHtoD");
        } catch (...) {
            free();
            throw;
        }
    }
    ~KernelWork() override { free(); }

    void enqueue(cuda::Handle stream, std::size_t, std::size_t rows, cuda::DevicePointer input,
                 cuda::DevicePointer output) override {
        cuda::DevicePointer scores = output;
        cuda::DevicePointer from = input;
        std::array<void *, 3> arguments{&from, &scores, &parameters_};
        const cuda::Driver &driver = device_->driver();
        driver.check(driver->launch(function_, static_cast<unsigned>(rows), 1, 1, threads_, 1, 1, 0, stream,
                                    arguments.data(), nullptr),
                     "cuLaunchKernel");
    }
    void abandon() noexcept override { module_ = nullptr, parameters_ = 0; }

  private:
    void free() noexcept {
        const cuda::Driver &driver = device_->driver();
        if (parameters_ != 0) {
            static_cast<void>(driver->free(parameters_));
        }
        if (module_ != nullptr) {
            static_cast<void>(driver->module_unload(module_));
        }
    }

    std::shared_ptr<cuda::Device> device_;
    unsigned threads_;
    cuda::Handle module_ = nullptr;
    cuda::Handle function_ = nullptr;
    cuda::DevicePointer parameters_ = 0;
};

} // namespace hwtune
