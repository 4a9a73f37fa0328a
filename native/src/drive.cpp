// Reads of a drive on a schedule, for Python.

#include "bind.hpp"

#include "hwtune/drive.hpp"
#include "stop_flag.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <span>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Due = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Column = nb::ndarray<nb::numpy, const std::uint64_t, nb::ndim<1>, nb::c_contig>;

template <std::vector<std::uint64_t> hwtune::DriveResult::*column> Column view(nb::handle_t<hwtune::DriveResult> self) {
    const std::vector<std::uint64_t> &values = nb::cast<hwtune::DriveResult &>(self).*column;
    return Column(values.data(), {values.size()}, self);
}

hwtune::DriveResult read_drive(int file, const Due &due_ns, const hwtune::Clock &clock, int cpu, std::uint64_t bytes,
                               std::uint32_t block, std::uint64_t seed, bool io_uring, const StopFlag *stop) {
    const hwtune::DrivePlan plan{file, cpu, bytes, block, std::span(due_ns.data(), due_ns.shape(0)), seed, io_uring};
    const StopFlag never;
    nb::gil_scoped_release release;
    return hwtune::read_drive(plan, clock, (stop != nullptr ? stop : &never)->raised);
}

} // namespace

void bind_drive(nb::module_ &module) {
    using Result = hwtune::DriveResult;
    nb::class_<Result>(module, "DriveResult")
        .def_ro("started_ns", &Result::started_ns)
        .def_ro("ended_ns", &Result::ended_ns)
        .def_ro("threshold_ns", &Result::threshold_ns)
        .def_ro("gaps_lost", &Result::gaps_lost)
        .def_ro("failed", &Result::failed)
        .def_ro("error", &Result::error)
        .def_ro("unfinished_ns", &Result::unfinished_ns)
        .def_ro("io_uring", &Result::io_uring)
        .def_ro("why", &Result::why)
        .def_ro("stopped", &Result::stopped)
        .def_ro("affinity_restored", &Result::affinity_restored)
        .def_prop_ro("due_ns", &view<&Result::due_ns>)
        .def_prop_ro("latency_ns", &view<&Result::latency_ns>)
        .def_prop_ro("wait_ns", &view<&Result::wait_ns>)
        .def_prop_ro("submit_ns", &view<&Result::submit_ns>)
        .def_prop_ro("gap_starts_ns", &view<&Result::gap_starts_ns>)
        .def_prop_ro("gap_lengths_ns", &view<&Result::gap_lengths_ns>);

    module.def("read_drive", &read_drive, "file"_a, "due_ns"_a, nb::kw_only(), "clock"_a, "cpu"_a, "bytes"_a,
               "block"_a = 4096, "seed"_a = 1, "io_uring"_a = true, "stop"_a = nb::none());
}
