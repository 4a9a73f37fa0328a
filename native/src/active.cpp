// Memory's distance and timers' lateness, for Python.

#include "bind.hpp"

#include "hwtune/memory.hpp"
#include "hwtune/wakeup.hpp"
#include "stop_flag.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T> using Column = nb::ndarray<nb::numpy, const T, nb::ndim<1>, nb::c_contig>;

template <class Result, class T, std::vector<T> Result::*column> Column<T> view(nb::handle_t<Result> self) {
    const std::vector<T> &values = nb::cast<Result &>(self).*column;
    return Column<T>(values.data(), {values.size()}, self);
}

std::chrono::nanoseconds nanoseconds(double seconds) {
    if (!std::isfinite(seconds) || seconds < 0.0 || seconds > 1e6) {
        throw std::invalid_argument("that is no number of seconds to measure for");
    }
    return std::chrono::nanoseconds(std::llround(seconds * 1e9));
}

hwtune::MemoryResult measure_memory(int cpu, int home, std::size_t bytes, double duration_s, const hwtune::Clock &clock,
                                    const StopFlag *stop) {
    const hwtune::MemoryPlan plan{cpu, home, bytes, nanoseconds(duration_s), 1};
    const StopFlag never;
    nb::gil_scoped_release release;
    return hwtune::measure_memory(plan, clock, (stop != nullptr ? stop : &never)->raised);
}

hwtune::WakeupResult wakeups(int cpu, double duration_s, double interval_s, int priority, const StopFlag *stop) {
    const hwtune::WakeupPlan plan{cpu, nanoseconds(duration_s), nanoseconds(interval_s), priority};
    const StopFlag never;
    nb::gil_scoped_release release;
    return hwtune::wakeups(plan, (stop != nullptr ? stop : &never)->raised);
}

} // namespace

void bind_active(nb::module_ &module) {
    using Memory = hwtune::MemoryResult;
    nb::class_<Memory>(module, "MemoryResult")
        .def_prop_ro("load_ns", &view<Memory, double, &Memory::load_ns>)
        .def_prop_ro("read_gbps", &view<Memory, double, &Memory::read_gbps>)
        .def_ro("nodes", &Memory::nodes)
        .def_ro("stopped", &Memory::stopped);
    module.def("measure_memory", &measure_memory, "cpu"_a, "home"_a, nb::kw_only(), "bytes"_a, "duration_s"_a, "clock"_a,
               "stop"_a = nb::none());

    using Wakeup = hwtune::WakeupResult;
    nb::class_<Wakeup>(module, "WakeupResult")
        .def_ro("cpu", &Wakeup::cpu)
        .def_ro("fifo", &Wakeup::fifo)
        .def_ro("error", &Wakeup::error)
        .def_ro("missed", &Wakeup::missed)
        .def_ro("stopped", &Wakeup::stopped)
        .def_ro("affinity_restored", &Wakeup::affinity_restored)
        .def_prop_ro("due_ns", &view<Wakeup, std::uint64_t, &Wakeup::due_ns>)
        .def_prop_ro("late_ns", &view<Wakeup, std::uint64_t, &Wakeup::late_ns>);
    module.def("wakeups", &wakeups, "cpu"_a, "duration_s"_a, nb::kw_only(), "interval_s"_a = 0.001, "priority"_a = 0,
               "stop"_a = nb::none());
}
