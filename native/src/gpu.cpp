// Engines on a GPU for Python, which brings the kernels: as an image that the driver loads, or as a function that puts
// them on a stream.

#include "bind.hpp"

#include "hwtune/gpu_engine.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using hwtune::GpuEngine;
using hwtune::GpuPlan;
using hwtune::cuda::Device;
using DevicePointer = std::shared_ptr<Device>;

DevicePointer make_device(int ordinal, const std::string &library) {
    nb::gil_scoped_release release; // a context takes up to seconds
    return std::make_shared<Device>(hwtune::cuda::Driver(library), ordinal);
}

GpuPlan plan_of(const std::string &name, std::vector<std::size_t> sizes, std::size_t streams, double deadline_s,
                int near_cpu) {
    if (!(deadline_s > 0) || deadline_s > 3600) {
        throw std::invalid_argument("the GPU's deadline is a number of seconds from 0 to an hour");
    }
    GpuPlan plan;
    plan.name = name;
    plan.sizes = std::move(sizes);
    plan.streams = streams;
    plan.deadline = std::chrono::nanoseconds(std::llround(deadline_s * 1e9));
    plan.near_cpu = near_cpu;
    return plan;
}

std::string text(const nb::bytes &bytes) { return {static_cast<const char *>(bytes.data()), bytes.size()}; }

std::unique_ptr<GpuEngine> make_kernel_engine(const DevicePointer &device, const hwtune::Clock &clock,
                                              const nb::bytes &image, const std::string &kernel,
                                              const nb::bytes &parameters, unsigned threads, const std::string &name,
                                              std::vector<std::size_t> sizes, std::size_t streams, double deadline_s,
                                              int near_cpu) {
    GpuPlan plan = plan_of(name, std::move(sizes), streams, deadline_s, near_cpu);
    const std::string code = text(image);
    const std::string numbers = text(parameters);
    nb::gil_scoped_release release;
    auto work = std::make_unique<hwtune::KernelWork>(device, code, kernel, numbers, threads);
    return std::make_unique<GpuEngine>(device, std::move(work), std::move(plan), clock);
}

// A function of Python's that puts the work on a stream. The interpreter lock is held whenever it is asked.
class CallWork final : public hwtune::GpuWork {
  public:
    explicit CallWork(nb::callable function) : function_(std::move(function)) {}

    void enqueue(hwtune::cuda::Handle stream, std::size_t slot, std::size_t rows, hwtune::cuda::DevicePointer input,
                 hwtune::cuda::DevicePointer output) override {
        function_(reinterpret_cast<std::uintptr_t>(stream), slot, rows, input, output);
    }
    // What it holds would ask the GPU to be let go.
    void abandon() noexcept override { static_cast<void>(function_.release()); }

  private:
    nb::callable function_;
};

std::unique_ptr<GpuEngine> make_call_engine(const DevicePointer &device, const hwtune::Clock &clock,
                                            nb::callable enqueue, const std::string &name,
                                            std::vector<std::size_t> sizes, std::size_t streams, double deadline_s,
                                            int near_cpu) {
    GpuPlan plan = plan_of(name, std::move(sizes), streams, deadline_s, near_cpu);
    return std::make_unique<GpuEngine>(device, std::make_unique<CallWork>(std::move(enqueue)), std::move(plan), clock);
}

using Times = std::vector<std::tuple<float, float, float>>;

Times profile(GpuEngine &engine, std::size_t rows, std::size_t rounds) {
    if (rows < 1 || rows > engine.max_batch() || rounds > 100'000) {
        throw std::invalid_argument("a profile takes 1 to max_batch rows and at most 100,000 rounds");
    }
    Times times;
    for (const GpuEngine::Parts &parts : engine.profile(rows, rounds)) {
        times.emplace_back(parts.in_us, parts.compute_us, parts.out_us);
    }
    return times;
}

std::vector<double> floor_of(GpuEngine &engine, std::size_t rounds) {
    if (rounds > 100'000) {
        throw std::invalid_argument("a floor takes at most 100,000 rounds");
    }
    return engine.floor(rounds);
}

} // namespace

void bind_gpu(nb::module_ &module) {
    nb::class_<Device>(module, "GpuDevice")
        .def_prop_ro("name", [](const Device &device) { return device.info().name; })
        .def_prop_ro("pci", [](const Device &device) { return device.info().pci; })
        .def_prop_ro("capability", [](const Device &device) { return std::tuple(device.info().major, device.info().minor); })
        .def_prop_ro("driver", [](const Device &device) { return device.info().driver; })
        .def_prop_ro("multiprocessors", [](const Device &device) { return device.info().multiprocessors; })
        .def_prop_ro("l2_bytes", [](const Device &device) { return device.info().l2_bytes; })
        .def("make_current",
             [](const Device &device) { device.driver().check(device.make_current(), "cuCtxSetCurrent"); })
        .def_prop_ro("memory_bytes", [](const Device &device) { return device.info().memory_bytes; });
    nb::class_<GpuEngine, hwtune::Engine>(module, "GpuEngine")
        .def_prop_ro("sizes", &GpuEngine::sizes)
        .def_prop_ro("launch", &GpuEngine::launch, nb::rv_policy::reference_internal)
        .def_prop_ro("wait", &GpuEngine::wait, nb::rv_policy::reference_internal)
        .def("profile", &profile, "rows"_a, "rounds"_a)
        .def("floor", &floor_of, "rounds"_a);

    module.def("make_gpu_device", &make_device, "ordinal"_a = 0, "library"_a = hwtune::cuda::Driver::usual);
    module.def("make_kernel_engine", &make_kernel_engine, "device"_a, "clock"_a, nb::kw_only(), "image"_a, "kernel"_a,
               "parameters"_a, "threads"_a, "name"_a, "sizes"_a, "streams"_a = 1, "deadline_s"_a = 2.0,
               "near_cpu"_a = -1);
    module.def("make_call_engine", &make_call_engine, "device"_a, "clock"_a, nb::kw_only(), "enqueue"_a, "name"_a,
               "sizes"_a, "streams"_a = 1, "deadline_s"_a = 2.0, "near_cpu"_a = -1);
}
