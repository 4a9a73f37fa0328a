// The pipeline for Python: a run is started, watched, and asked for its result.

#include "bind.hpp"

#include "hwtune/pipeline.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Records = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

std::chrono::nanoseconds nanoseconds(double seconds, const char *what) {
    if (!std::isfinite(seconds) || std::abs(seconds) > 1e9) {
        throw std::invalid_argument(std::string(what) + " is not a number of seconds that can be waited for");
    }
    return std::chrono::nanoseconds(std::llround(seconds * 1e9));
}

hwtune::Arrivals arrivals_of(std::string_view name) {
    if (name == "fixed") {
        return hwtune::Arrivals::fixed;
    }
    if (name == "poisson") {
        return hwtune::Arrivals::poisson;
    }
    if (name == "burst") {
        return hwtune::Arrivals::burst;
    }
    if (name == "recorded") {
        return hwtune::Arrivals::recorded;
    }
    throw std::invalid_argument("arrivals are fixed, poisson, burst or recorded, not " + std::string(name));
}

hwtune::Role role_of(std::string_view name) {
    for (const hwtune::Role role : {hwtune::Role::generator, hwtune::Role::compute, hwtune::Role::orders}) {
        if (name == hwtune::name(role)) {
            return role;
        }
    }
    throw std::invalid_argument("a stage is generator, compute or orders, not " + std::string(name));
}

// Everything that a run needs for as long as it lasts.
struct Run {
    std::vector<hwtune::RecordedTick> recorded;
    std::unique_ptr<hwtune::OrderSink> sink;
    std::unique_ptr<hwtune::Pipeline> pipeline;
};

std::unique_ptr<Run> make_run(hwtune::Engine &engine, const hwtune::Clock &clock, std::array<int, 3> cpus,
                              const std::string &arrivals, double rate, std::uint32_t burst_size, std::uint64_t seed,
                              const std::optional<Records> &recorded, double warmup_s, double duration_s,
                              std::size_t tick_capacity, std::size_t order_capacity, std::size_t batch_limit,
                              std::uint64_t outlier_threshold_ns, std::uint64_t outlier_ceiling_ns,
                              std::size_t outlier_capacity, std::size_t windows,
                              bool huge_pages, bool lock_memory, const std::optional<std::string> &udp_host,
                              std::uint16_t udp_port, const std::string &stall_role, double stall_at_s,
                              double stall_length_s) {
    auto run = std::make_unique<Run>();
    hwtune::PipelinePlan plan;
    plan.cpus = cpus;
    plan.arrivals.kind = arrivals_of(arrivals);
    plan.arrivals.rate = rate;
    plan.arrivals.burst_size = burst_size;
    plan.arrivals.seed = seed;
    if (plan.arrivals.kind == hwtune::Arrivals::recorded) {
        if (!recorded || recorded->shape(1) != sizeof(hwtune::RecordedTick) || recorded->shape(0) == 0) {
            throw std::invalid_argument("recorded arrivals need ticks: an array of shape (ticks, 48) of bytes");
        }
        run->recorded.resize(recorded->shape(0));
        std::memcpy(run->recorded.data(), recorded->data(), recorded->nbytes());
        plan.arrivals.recorded = run->recorded;
    }
    plan.warmup = nanoseconds(warmup_s, "warmup_s");
    plan.duration = nanoseconds(duration_s, "duration_s");
    plan.tick_capacity = tick_capacity;
    plan.order_capacity = order_capacity;
    plan.batch_limit = batch_limit;
    plan.outlier_threshold_ns = outlier_threshold_ns;
    plan.outlier_ceiling_ns = outlier_ceiling_ns;
    plan.outlier_capacity = outlier_capacity;
    plan.windows = windows;
    plan.huge_pages = huge_pages;
    plan.lock_memory = lock_memory;
    plan.stall = {role_of(stall_role), nanoseconds(stall_at_s, "stall_at_s"), nanoseconds(stall_length_s, "stall_length_s")};
    nb::gil_scoped_release release;
    run->sink = udp_host ? std::make_unique<hwtune::OrderSink>(*udp_host, udp_port) : std::make_unique<hwtune::OrderSink>();
    run->pipeline = std::make_unique<hwtune::Pipeline>(std::move(plan), clock, engine, *run->sink);
    return run;
}

nb::dict counts_of(const hwtune::ThreadResult &thread) {
    nb::list roles;
    for (const hwtune::Role role : thread.roles) {
        roles.append(hwtune::name(role));
    }
    nb::dict counters;
    for (const auto &[name, value] : thread.counts.counters) {
        counters[name.c_str()] = value;
    }
    nb::dict found;
    found["roles"] = nb::tuple(roles);
    found["cpu"] = thread.cpu;
    found["minor_faults"] = thread.counts.minor_faults;
    found["major_faults"] = thread.counts.major_faults;
    found["voluntary_switches"] = thread.counts.voluntary_switches;
    found["involuntary_switches"] = thread.counts.involuntary_switches;
    found["migrations"] = thread.counts.migrations ? nb::cast(*thread.counts.migrations) : nb::none();
    found["counters"] = counters;
    found["counters_missing"] = thread.counts.counters_missing;
    return found;
}

nb::dict result_of(Run &run) {
    hwtune::PipelineResult result;
    {
        nb::gil_scoped_release release;
        result = run.pipeline->result();
    }
    nb::dict found;
    found["started_ticks"] = result.started_ticks;
    found["started_ns"] = result.started_ns;
    found["duration_s"] = result.duration_s;
    found["window_s"] = result.window_s;
    found["warmup"] = result.warmup;
    found["due"] = result.due;
    found["completed"] = result.completed;
    found["tick_drops"] = result.tick_drops;
    found["order_drops"] = result.order_drops;
    found["tick_high_watermark"] = result.tick_high_watermark;
    found["order_high_watermark"] = result.order_high_watermark;
    found["outlier_threshold_ns"] = result.outlier_threshold_ns;
    found["outliers_seen"] = result.outliers_seen;
    found["orders_sent"] = result.orders_sent;
    found["orders_failed"] = result.orders_failed;
    found["interrupted"] = result.interrupted;
    found["memory_locked"] = result.memory_locked;
    found["memory_why"] = result.memory_why;
    found["huge_pages"] = result.huge_pages;
    found["failure"] = result.failure;
    nb::list outliers;
    for (const hwtune::Outlier &outlier : result.outliers) {
        nb::list at;
        for (const std::uint64_t stamp : outlier.at) {
            at.append(stamp);
        }
        outliers.append(nb::make_tuple(outlier.sequence, nb::tuple(at)));
    }
    found["outliers"] = outliers;
    nb::list threads;
    for (const hwtune::ThreadResult &thread : result.threads) {
        threads.append(counts_of(thread));
    }
    found["threads"] = threads;
    nb::dict batches;
    for (std::size_t rows = 0; rows < result.batches.size(); ++rows) {
        if (result.batches[rows] > 0) {
            batches[nb::int_(rows)] = result.batches[rows];
        }
    }
    found["batches"] = batches;
    const hwtune::detail::Ledger &ledger = run.pipeline->ledger();
    nb::list stages;
    for (const hwtune::Histogram &histogram : ledger.stage) {
        stages.append(nb::cast(histogram, nb::rv_policy::copy));
    }
    found["stages"] = stages;
    found["end_to_end"] = nb::cast(ledger.end_to_end, nb::rv_policy::copy);
    return found;
}

using Windows = nb::ndarray<nb::numpy, const std::uint32_t, nb::ndim<2>, nb::c_contig>;

Windows windows_of(nb::handle_t<Run> self) {
    const Run &run = nb::cast<Run &>(self);
    const std::size_t windows = run.pipeline->plan().windows;
    return Windows(run.pipeline->ledger().windows.data(), {windows, hwtune::Histogram::buckets()}, self);
}

using StageWindows = nb::ndarray<nb::numpy, const std::uint32_t, nb::ndim<3>, nb::c_contig>;

StageWindows stage_windows_of(nb::handle_t<Run> self) {
    const Run &run = nb::cast<Run &>(self);
    const hwtune::detail::Ledger &ledger = run.pipeline->ledger();
    return StageWindows(ledger.stage_windows.data(),
                        {run.pipeline->plan().windows, ledger.stage.size(), hwtune::CoarseBuckets::count()}, self);
}

} // namespace

void bind_pipeline(nb::module_ &module) {
    nb::class_<Run>(module, "Pipeline")
        .def("start",
             [](Run &run) {
                 nb::gil_scoped_release release;
                 run.pipeline->start();
             })
        .def("stop", [](Run &run) { run.pipeline->stop(); })
        .def("over", [](const Run &run) { return run.pipeline->over(); })
        .def_prop_ro("due", [](const Run &run) { return run.pipeline->due(); })
        .def_prop_ro("completed", [](const Run &run) { return run.pipeline->completed(); })
        .def_prop_ro("started_ns", [](const Run &run) { return run.pipeline->started_ns(); })
        .def("result", &result_of)
        .def("windows", &windows_of)
        .def("stage_windows", &stage_windows_of)
        .def("last_order", [](const Run &run) {
            const hwtune::OrderMessage &message = run.sink->last();
            return nb::bytes(reinterpret_cast<const char *>(message.data()), message.size());
        });

    module.def("make_pipeline", &make_run, "engine"_a, "clock"_a, nb::kw_only(), "cpus"_a, "arrivals"_a = "fixed",
               "rate"_a = 100'000.0, "burst_size"_a = 32, "seed"_a = 1, "recorded"_a = nb::none(), "warmup_s"_a = 0.5,
               "duration_s"_a = 5.0, "tick_capacity"_a = 4096, "order_capacity"_a = 4096, "batch_limit"_a = 32,
               "outlier_threshold_ns"_a = 0, "outlier_ceiling_ns"_a = 0, "outlier_capacity"_a = 4096, "windows"_a = 60, "huge_pages"_a = false,
               "lock_memory"_a = true, "udp_host"_a = nb::none(), "udp_port"_a = 0, "stall_role"_a = "compute",
               "stall_at_s"_a = 0.0, "stall_length_s"_a = 0.0, nb::keep_alive<0, 1>());
}
