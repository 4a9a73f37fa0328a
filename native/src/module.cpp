// hwtune._native: the clock and the spin loop for Python. Its types are written down in hwtune/_native.pyi.

#include "bind.hpp"
#include "stop_flag.hpp"

#include "hwtune/clock.hpp"
#include "hwtune/spin.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Column = nb::ndarray<nb::numpy, const std::uint64_t, nb::ndim<1>, nb::c_contig>;

// A read-only view that keeps its SpinResult alive.
template <std::vector<std::uint64_t> hwtune::SpinResult::*column> Column view(nb::handle_t<hwtune::SpinResult> self) {
    const std::vector<std::uint64_t> &values = nb::cast<hwtune::SpinResult &>(self).*column;
    return Column(values.data(), {values.size()}, self);
}

std::chrono::nanoseconds nanoseconds(double seconds, const char *what) {
    // The cast below is undefined outside int64; nothing here lasts longer than a day.
    if (!std::isfinite(seconds) || std::abs(seconds) > 1e8) {
        throw std::invalid_argument(std::string(what) + " is not a number of seconds that can be waited for");
    }
    return std::chrono::nanoseconds(std::llround(seconds * 1e9));
}

hwtune::Clock make_clock(const std::optional<std::string> &clocksource, double window_s) {
    const std::chrono::nanoseconds window = nanoseconds(window_s, "window_s");
    if (window < std::chrono::milliseconds(1) || window > std::chrono::seconds(10)) {
        throw std::invalid_argument("window_s must be from 0.001 to 10 seconds");
    }
    nb::gil_scoped_release release;
    return clocksource ? hwtune::make_clock(clocksource, window) : hwtune::make_clock(hwtune::current_clocksource(), window);
}

hwtune::SpinResult spin(int cpu, double duration_s, const hwtune::Clock &clock, std::optional<std::uint64_t> threshold_ns,
                        std::size_t capacity, const StopFlag *stop) {
    if (threshold_ns && *threshold_ns == 0) {
        throw std::invalid_argument("threshold_ns must be above 0; leave it out to take it from the loop itself");
    }
    const hwtune::SpinPlan plan{cpu, nanoseconds(duration_s, "duration_s"), threshold_ns.value_or(0), capacity};
    const StopFlag never;
    nb::gil_scoped_release release;
    return hwtune::spin(plan, clock, (stop != nullptr ? stop : &never)->raised);
}

void os_error(const std::exception_ptr &pointer, void *) {
    try {
        std::rethrow_exception(pointer);
    } catch (const std::system_error &error) {
        // OSError(errno, text) picks the subclass (PermissionError and so on) by itself.
        nb::object value = nb::borrow(PyExc_OSError)(error.code().value(), error.what());
        PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(value.ptr())), value.ptr());
    }
}

} // namespace

NB_MODULE(_native, module) {
    nb::register_exception_translator(os_error);

    nb::class_<hwtune::Clock>(module, "Clock")
        .def_prop_ro("source", [](const hwtune::Clock &clock) { return hwtune::name(clock.source); })
        .def_ro("why", &hwtune::Clock::why)
        .def_ro("ns_per_tick", &hwtune::Clock::ns_per_tick)
        .def_ro("error_ppm", &hwtune::Clock::error_ppm)
        .def_ro("cost_ns", &hwtune::Clock::cost_ns)
        .def_ro("step_ns", &hwtune::Clock::step_ns)
        .def("ticks", &hwtune::Clock::ticks)
        .def("ns", &hwtune::Clock::ns, "span_ticks"_a);

    nb::class_<StopFlag>(module, "StopFlag")
        .def(nb::init<>())
        .def("set", [](StopFlag &flag) { flag.raised.store(true, std::memory_order_relaxed); })
        .def("is_set", [](const StopFlag &flag) { return flag.raised.load(std::memory_order_relaxed); });

    using Result = hwtune::SpinResult;
    nb::class_<Result>(module, "SpinResult")
        .def_ro("cpu", &Result::cpu)
        .def_ro("started_ns", &Result::started_ns)
        .def_ro("started_ticks", &Result::started_ticks)
        .def_ro("duration_ns", &Result::duration_ns)
        .def_ro("threshold_ns", &Result::threshold_ns)
        .def_ro("step_min_ns", &Result::step_min_ns)
        .def_ro("step_median_ns", &Result::step_median_ns)
        .def_ro("iterations", &Result::iterations)
        .def_ro("gap_ns", &Result::gap_ns)
        .def_ro("longest_ns", &Result::longest_ns)
        .def_ro("lost", &Result::lost)
        .def_ro("backwards", &Result::backwards)
        .def_ro("voluntary_switches", &Result::voluntary_switches)
        .def_ro("involuntary_switches", &Result::involuntary_switches)
        .def_ro("minor_faults", &Result::minor_faults)
        .def_ro("major_faults", &Result::major_faults)
        .def_ro("stopped", &Result::stopped)
        .def_ro("migrated", &Result::migrated)
        .def_ro("affinity_restored", &Result::affinity_restored)
        .def_prop_ro("gap_starts_ns", &view<&Result::gap_starts_ns>)
        .def_prop_ro("gap_lengths_ns", &view<&Result::gap_lengths_ns>);

    module.def("make_clock", &make_clock, "clocksource"_a = nb::none(), "window_s"_a = 0.02);
    module.def("spin", &spin, "cpu"_a, "duration_s"_a, nb::kw_only(), "clock"_a, "threshold_ns"_a = nb::none(),
               "capacity"_a = std::size_t{1} << 16U, "stop"_a = nb::none());

    bind_histogram(module);
    bind_queue(module);
    bind_features(module);
    bind_engine(module);
    bind_gpu(module); // engines too
    bind_pipeline(module);
    bind_drive(module);
    bind_active(module);
}
