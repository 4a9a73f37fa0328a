// The whole way of a tick: with real threads, and on a clock that the test itself moves.

#include "hwtune/pipeline.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <unistd.h>
#include <vector>

using namespace hwtune;
using namespace std::chrono_literals;

namespace {

// Answers after `polls` polls; fails at batch `fails_at`.
class TestEngine : public Engine {
  public:
    explicit TestEngine(std::size_t slots = 1, int polls = 0, std::size_t fails_at = 0)
        : slots_(slots), polls_(polls), fails_at_(fails_at), in_(slots * rows * feature_width), out_(slots * rows, 0.75F),
          left_(slots, 0) {}

    [[nodiscard]] std::string name() const override { return "test"; }
    [[nodiscard]] std::size_t max_batch() const noexcept override { return rows; }
    [[nodiscard]] std::size_t slots() const noexcept override { return slots_; }
    [[nodiscard]] float *input(std::size_t slot) noexcept override { return in_.data() + slot * rows * feature_width; }
    [[nodiscard]] const float *output(std::size_t slot) const noexcept override { return out_.data() + slot * rows; }
    void submit(std::size_t slot, std::size_t count) noexcept override {
        left_[slot] = polls_;
        most_ = std::max(most_, count);
        ++batches_;
    }
    [[nodiscard]] Status poll(std::size_t slot) noexcept override {
        if (fails_at_ != 0 && batches_ >= fails_at_) {
            return Status::failed;
        }
        return left_[slot]-- > 0 ? Status::busy : Status::done;
    }
    [[nodiscard]] std::string error() const override { return "it was told to fail"; }

    static constexpr std::size_t rows = 16;
    std::size_t most_ = 0;

  private:
    std::size_t slots_;
    int polls_;
    std::size_t fails_at_;
    std::size_t batches_ = 0;
    std::vector<float> in_;
    std::vector<float> out_;
    std::vector<int> left_;
};

const Clock &the_clock() {
    static const Clock clock = make_clock();
    return clock;
}

// The CPUs of this process, for as many stages as it has: two at least share one thread on two CPUs.
std::array<int, roles> some_cpus() {
    std::vector<int> found;
    for (int cpu = 0; cpu < 1024 && found.size() < 3; ++cpu) {
        try {
            const Pinned pinned(cpu);
            found.push_back(cpu);
        } catch (const std::system_error &) {
            continue;
        }
    }
    REQUIRE(!found.empty());
    const int last = found.back();
    return {found[0], found.size() > 1 ? found[1] : last, last};
}

PipelinePlan short_plan() {
    PipelinePlan plan;
    plan.cpus = some_cpus();
    plan.arrivals.rate = 20'000;
    plan.warmup = 20ms;
    plan.duration = 100ms;
    plan.lock_memory = false; // the sanitizers' shadow memory is not to be locked
    return plan;
}

PipelineResult run(const PipelinePlan &plan, Engine &engine, OrderSink &sink) {
    Pipeline pipeline(plan, the_clock(), engine, sink);
    pipeline.start();
    return pipeline.result();
}

std::uint64_t weighted(const std::vector<std::uint64_t> &batches) {
    std::uint64_t rows = 0;
    for (std::size_t i = 0; i < batches.size(); ++i) {
        rows += i * batches[i];
    }
    return rows;
}

// A clock of one tick a nanosecond that moves by `step` whenever somebody reads it.
struct TestClock {
    std::uint64_t now = 1000;
    std::uint64_t step = 10;
    std::uint64_t read() noexcept { return now += step; }
    std::uint64_t read_after() noexcept { return read(); }
};

// All stages in one thread on the test's clock: nothing here depends on the machine.
struct Simulation {
    Simulation(const PipelinePlan &plan, Engine &engine)
        : ticks(plan.tick_capacity), decisions(plan.order_capacity),
          ledger{{}, {}, std::vector<std::uint32_t>(plan.windows * Histogram::buckets(), 0),
                 std::vector<std::uint32_t>(plan.windows * stages * CoarseBuckets::count(), 0)},
          generator(plan, board, ticks.producer()),
          compute(plan, board, engine, ticks.consumer(), decisions.producer()),
          orders(plan, board, sink, ledger, 1.0, decisions.consumer()) {
        board.ticks_per_ns = 1.0;
        board.begin = 2000;
        board.warm_end = board.begin + static_cast<std::uint64_t>(plan.warmup.count());
        board.measured = board.warm_end + 5'000'000;
        board.end = board.measured + static_cast<std::uint64_t>(plan.duration.count());
    }

    PipelineResult run() {
        detail::run_stages(clock, account, generator, compute, orders);
        return report();
    }

    // Lets the generator alone be on its CPU until `time`.
    void generate_until(std::uint64_t time) {
        while (clock.now < time && !generator.finished()) {
            static_cast<void>(generator.step(clock, account));
        }
    }

    PipelineResult report() {
        PipelineResult result;
        generator.report(result);
        compute.report(result);
        orders.report(result);
        return result;
    }

    detail::Board board;
    SpscQueue<Tick> ticks;
    SpscQueue<Decision> decisions;
    detail::Ledger ledger;
    OrderSink sink;
    detail::GeneratorStage generator;
    detail::ComputeStage compute;
    detail::OrderStage orders;
    ThreadAccount account;
    TestClock clock;
};

std::uint64_t above(const Histogram &histogram, std::uint64_t ns) {
    std::uint64_t count = 0;
    for (std::uint64_t i = 1; i <= 1000; ++i) { // the share above, to a thousandth
        count += histogram.value_at(static_cast<double>(i) / 1000.0) > ns ? 1U : 0U;
    }
    return count;
}

} // namespace

TEST_SUITE("pipeline") {
    TEST_CASE("every tick that was due is an order or was dropped, and is counted once in every stage") {
        TestEngine engine;
        OrderSink sink;
        Pipeline pipeline(short_plan(), the_clock(), engine, sink);
        pipeline.start();
        const PipelineResult result = pipeline.result();
        CHECK(result.due == 2000);
        CHECK(result.warmup == 400);
        CHECK(result.completed + result.tick_drops + result.order_drops == result.due);
        CHECK(pipeline.ledger().end_to_end.count() == result.completed);
        for (const Histogram &stage : pipeline.ledger().stage) {
            CHECK(stage.count() == result.completed);
        }
        const std::vector<std::uint32_t> &windows = pipeline.ledger().windows;
        CHECK(std::accumulate(windows.begin(), windows.end(), std::uint64_t{0}) == result.completed);
        const std::vector<std::uint32_t> &parts = pipeline.ledger().stage_windows;
        CHECK(std::accumulate(parts.begin(), parts.end(), std::uint64_t{0}) == stages * result.completed);
        CHECK(weighted(result.batches) == result.due - result.tick_drops);
        CHECK(result.duration_s == doctest::Approx(0.09995)); // the last of 2,000 at 50 us
        CHECK(result.window_s == doctest::Approx(0.1 / 60));
        CHECK(result.failure.empty());
        CHECK_FALSE(result.interrupted);
        CHECK(pipeline.over());
        CHECK(pipeline.completed() == result.completed);
    }

    TEST_CASE("stamps of an outlier go forward, and threads tell where they were") {
        PipelinePlan plan = short_plan();
        plan.outlier_threshold_ns = 1;
        plan.outlier_capacity = 10;
        TestEngine engine;
        OrderSink sink;
        const PipelineResult result = run(plan, engine, sink);
        CHECK(result.outliers_seen == result.completed);
        REQUIRE(result.outliers.size() == 10);
        for (std::size_t i = 0; i < result.outliers.size(); ++i) {
            CHECK(std::is_sorted(result.outliers[i].at.begin(), result.outliers[i].at.end()));
            CHECK(result.outliers[i].at[0] >= result.started_ticks);
            CHECK((i == 0 || result.outliers[i - 1].sequence < result.outliers[i].sequence));
        }
        std::size_t named = 0;
        for (const ThreadResult &thread : result.threads) {
            named += thread.roles.size();
            for (const Role role : thread.roles) {
                CHECK(thread.cpu == plan.cpus[static_cast<std::size_t>(role)]);
            }
        }
        CHECK(named == roles);
    }

    TEST_CASE("one thread holds all stages where there is one CPU") {
        PipelinePlan plan = short_plan();
        plan.cpus = {plan.cpus[0], plan.cpus[0], plan.cpus[0]};
        TestEngine engine;
        OrderSink sink;
        const PipelineResult result = run(plan, engine, sink);
        CHECK(result.threads.size() == 1);
        CHECK(result.completed + result.tick_drops + result.order_drops == 2000);
    }

    TEST_CASE("batches under way at once, answered late: all come back, in order, one limit for all") {
        TestEngine engine(3, 4);
        PipelinePlan plan = short_plan();
        plan.batch_limit = 5;
        plan.outlier_threshold_ns = 1;
        plan.outlier_capacity = 4096;
        OrderSink sink;
        const PipelineResult result = run(plan, engine, sink);
        CHECK(result.completed + result.tick_drops + result.order_drops == 2000);
        CHECK(engine.most_ <= 5);
        CHECK(result.batches.size() == 6);
        CHECK(sink.sent() >= result.completed);
    }

    TEST_CASE("a full queue drops and counts, and never holds the generator up") {
        PipelinePlan plan;
        plan.arrivals.rate = 1e6;
        plan.warmup = 0ns;
        plan.duration = 1ms; // 1,000 ticks, of which 64 find room
        plan.tick_capacity = 64;
        TestEngine engine;
        Simulation simulation(plan, engine);
        simulation.generator.prepare();
        simulation.compute.prepare();
        simulation.orders.prepare();
        simulation.generate_until(simulation.board.end);
        CHECK(simulation.report().due == 1000);
        CHECK(simulation.report().tick_drops == 936);
        while (!simulation.orders.finished()) {
            static_cast<void>(simulation.generator.step(simulation.clock, simulation.account));
            if (!simulation.compute.finished()) {
                static_cast<void>(simulation.compute.step(simulation.clock, simulation.account));
            }
            static_cast<void>(simulation.orders.step(simulation.clock, simulation.account));
        }
        const PipelineResult result = simulation.report();
        CHECK(result.completed == 64);
        CHECK(result.tick_high_watermark == 63); // one was taken before it was seen that more wait
        CHECK(simulation.ledger.stage[0].value_at(1.0) <= 10); // the clock's step: nothing kept it
    }

    TEST_CASE("with threads of their own, a stall of one stage fills the queue before it") {
        PipelinePlan plan = short_plan();
        plan.tick_capacity = 64;
        plan.stall = {Role::compute, 20ms, 50ms}; // 1,000 ticks fall due, 64 find room
        TestEngine engine;
        OrderSink sink;
        const PipelineResult result = run(plan, engine, sink);
        CHECK(result.due == 2000);
        if (plan.cpus[0] != plan.cpus[1]) {
            CHECK(result.tick_drops >= 900);
            CHECK(result.tick_high_watermark == 64);
        }
        CHECK(result.tick_high_watermark <= 64);
        CHECK(result.completed == result.due - result.tick_drops - result.order_drops);
    }

    TEST_CASE("an engine that fails ends the run and says why") {
        TestEngine engine(1, 0, 50);
        OrderSink sink;
        const PipelineResult result = run(short_plan(), engine, sink);
        CHECK(result.failure == "it was told to fail");
        CHECK_FALSE(result.interrupted);
        CHECK(result.completed < 2000);
    }

    TEST_CASE("stopped from outside, it tells what it has") {
        PipelinePlan plan = short_plan();
        plan.duration = 1h;
        TestEngine engine;
        OrderSink sink;
        Pipeline pipeline(plan, the_clock(), engine, sink);
        pipeline.start();
        while (pipeline.completed() < 100) {
            std::this_thread::sleep_for(1ms);
        }
        CHECK_FALSE(pipeline.over());
        pipeline.stop();
        const PipelineResult result = pipeline.result();
        CHECK(result.interrupted);
        CHECK(result.completed >= 100);
        CHECK(result.completed + result.tick_drops + result.order_drops == result.due);
    }

    TEST_CASE("a recording is played after the warm-up, to its end") {
        std::vector<RecordedTick> ticks;
        for (std::uint64_t i = 0; i < 50; ++i) {
            ticks.push_back({1'000'000'000 + i * 200'000, 99.0, 101.0, 100.0 + static_cast<double>(i), 1, 1, 1, 1});
        }
        PipelinePlan plan = short_plan();
        plan.arrivals.kind = Arrivals::recorded;
        plan.arrivals.recorded = ticks;
        TestEngine engine;
        OrderSink sink;
        const PipelineResult result = run(plan, engine, sink);
        CHECK(result.due == 50);
        CHECK(result.warmup == 400);
        std::int64_t price = 0;
        std::memcpy(&price, sink.last().data() + 24, sizeof price);
        CHECK(price == 149 * 10'000);
    }

    TEST_CASE("what can't be run is refused") {
        TestEngine engine;
        OrderSink sink;
        PipelinePlan plan = short_plan();
        plan.cpus = {0, 1, 0};
        CHECK_THROWS_AS(Pipeline(plan, the_clock(), engine, sink), std::invalid_argument);
        plan = short_plan();
        plan.tick_capacity = 100;
        CHECK_THROWS_AS(Pipeline(plan, the_clock(), engine, sink), std::invalid_argument);
        plan = short_plan();
        plan.duration = 0ns;
        CHECK_THROWS_AS(Pipeline(plan, the_clock(), engine, sink), std::invalid_argument);
        plan = short_plan();
        plan.batch_limit = 0;
        CHECK_THROWS_AS(Pipeline(plan, the_clock(), engine, sink), std::invalid_argument);
        plan = short_plan();
        plan.cpus[0] = 1023;
        Pipeline pipeline(plan, the_clock(), engine, sink);
        CHECK_THROWS_AS(pipeline.start(), std::system_error);
        Pipeline never(short_plan(), the_clock(), engine, sink); // made and not started: ends quietly
    }

    TEST_CASE("a stall is charged to every tick that it delays: no coordinated omission") {
        // 1,000 ticks a millisecond; the compute stage stands still for 1 ms. The tick due k us into the stall waits
        // 1 - k/1000 ms: their latencies are spread evenly from 1 ms down. A closed loop would see one slow tick.
        PipelinePlan plan;
        plan.arrivals.rate = 1e6;
        plan.warmup = 1ms;
        plan.duration = 10ms;
        plan.windows = 10;
        plan.outlier_capacity = 16;
        plan.batch_limit = 1;
        for (const Role role : {Role::generator, Role::compute, Role::orders}) {
            CAPTURE(name(role));
            plan.stall = {role, 4ms, 1ms};
            TestEngine engine;
            Simulation simulation(plan, engine);
            const PipelineResult result = simulation.run();
            CHECK(result.due == 10'000);
            CHECK(result.completed == 10'000);
            const Histogram &latency = simulation.ledger.end_to_end;
            CHECK(latency.value_at(1.0) == doctest::Approx(1e6).epsilon(0.01));
            // In thousandths of 10,000 ticks: 100 were delayed, evenly. Working off what piled up takes each tick
            // about 100 ns more, so a tenth more of them wait than the stall itself delayed.
            CHECK(above(latency, 750'000) >= 25);
            CHECK(above(latency, 750'000) <= 28);
            CHECK(above(latency, 500'000) >= 50);
            CHECK(above(latency, 500'000) <= 56);
            CHECK(above(latency, 250'000) >= 75);
            CHECK(above(latency, 250'000) <= 84);
            CHECK(above(latency, 10'000) >= 99);
            CHECK(above(latency, 10'000) <= 112);
            // and nobody else is slow
            CHECK(latency.value_at(0.85) < 500);
            // it fell into the fifth and sixth millisecond
            for (std::size_t window = 0; window < 10; ++window) {
                std::uint64_t slow = 0;
                for (std::size_t i = Histogram::bucket_index(250'000); i < Histogram::buckets(); ++i) {
                    slow += simulation.ledger.windows[window * Histogram::buckets() + i];
                }
                CAPTURE(window);
                CHECK((slow > 0) == (window == 4));
            }
        }
    }

    TEST_CASE("each stage is charged with its own stall") {
        PipelinePlan plan;
        plan.arrivals.rate = 1000; // one tick a millisecond: nothing piles up
        plan.warmup = 5ms;
        plan.duration = 10ms;
        const std::array<std::size_t, roles> charged{0, 2, 5}; // generate, features, order
        for (std::size_t role = 0; role < roles; ++role) {
            plan.stall = {static_cast<Role>(role), 4ms, 300us};
            TestEngine engine;
            Simulation simulation(plan, engine);
            static_cast<void>(simulation.run());
            for (std::size_t stage = 0; stage < stages; ++stage) {
                CAPTURE(role);
                CAPTURE(stage);
                const std::uint64_t slowest = simulation.ledger.stage[stage].value_at(1.0);
                if (stage == charged[role]) {
                    CHECK(slowest == doctest::Approx(3e5).epsilon(0.01));
                } else {
                    CHECK(slowest < 1000);
                }
            }
        }
    }
}
