// What the pipeline adds to its queues: end to end with an engine that does nothing, against the hops that it makes.
//
// With two CPUs compute and orders share one thread, so one hop is between CPUs and one within a thread. The measure is
// those two hops, taken right before, and 150 ns: five stamps, the features of a tick, an order's message, seven counts.

#pragma once

#include "queue_bench.hpp"

#include "hwtune/perceptron.hpp"
#include "hwtune/pipeline.hpp"

#include <chrono>
#include <string_view>

namespace bench::pipeline {

inline constexpr double allowance_ns = 150.0;

// P50 and P99 from when a tick was due to when its order was with the sink, 100,000 ticks a second.
inline Sample end_to_end(Cpus cpus) {
    hwtune::PipelinePlan plan;
    plan.warmup = std::chrono::milliseconds(5);
    plan.duration = std::chrono::milliseconds(25);
    plan.windows = 1;
    plan.outlier_capacity = 1;
    plan.outlier_threshold_ns = 1'000'000'000;
    hwtune::NullEngine engine(plan.batch_limit);
    hwtune::OrderSink sink;
    hwtune::SpscQueue<hwtune::Tick> ticks_queue(plan.tick_capacity);
    hwtune::SpscQueue<hwtune::Decision> decisions(plan.order_capacity);
    hwtune::detail::Board board;
    hwtune::detail::Ledger ledger;
    ledger.windows.assign(hwtune::Histogram::buckets(), 0);
    hwtune::detail::GeneratorStage generator(plan, board, ticks_queue.producer());
    hwtune::detail::ComputeStage compute(plan, board, engine, ticks_queue.consumer(), decisions.producer());
    hwtune::detail::OrderStage orders(plan, board, sink, ledger, ns_per_tick(), decisions.consumer());
    std::atomic<bool> go{false};
    Sample sample = burst(
        cpus,
        [&](Sample &) {
            board.ns_per_tick = ns_per_tick();
            board.ticks_per_ns = 1.0 / ns_per_tick();
            board.begin = Counter::read() + ticks(1e5);
            board.warm_end = board.begin + ticks(static_cast<double>(plan.warmup.count()));
            board.measured = board.warm_end + ticks(1e6);
            board.end = board.measured + ticks(static_cast<double>(plan.duration.count()));
            go.store(true, std::memory_order_release);
            Counter counter;
            hwtune::ThreadAccount account;
            hwtune::detail::run_stages(counter, account, generator);
        },
        [&](Sample &) {
            Counter counter;
            hwtune::ThreadAccount account;
            while (!go.load(std::memory_order_acquire)) {
                cpu_pause();
            }
            hwtune::detail::run_stages(counter, account, compute, orders);
        });
    sample.count = ledger.end_to_end.count();
    sample.complete = sample.count > 0;
    if (sample.complete) {
        sample.value = static_cast<double>(ledger.end_to_end.value_at(0.5));
        sample.p99 = static_cast<double>(ledger.end_to_end.value_at(0.99));
    }
    return sample;
}

inline Sample hop(std::string_view test, Cpus cpus) {
    for (const Cell &cell : cells()) {
        if (cell.test == test && cell.queue == "hwtune" && cell.bytes == sizeof(hwtune::Tick) && cell.capacity == 1024) {
            return cell.run(cpus);
        }
    }
    die("no cell to take the hops from");
}

inline Sample hops_and_allowance(Cpus cpus) {
    Sample sample = hop("one-way", cpus);
    const Sample within = hop("pair", cpus);
    sample.value += within.value + allowance_ns;
    sample.preempted += within.preempted;
    return sample;
}

inline void add_pipeline() {
    cells().push_back({"pipeline", "end to end", 0, 0, end_to_end});
    cells().push_back({"pipeline", "hops", 0, 0, hops_and_allowance});
}

} // namespace bench::pipeline
