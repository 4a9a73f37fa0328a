// The micro-pipeline: generator -> SPSC queue -> features and inference -> SPSC queue -> orders. Each stage is a
// thread of its own that spins on its CPU; where there are fewer CPUs than stages, neighbours share one thread.
//
// The run has two sections. The warm-up is measured by nobody but the outliers' threshold. A pause follows, in
// which every thread settles its accounts (getrusage and the like); from then until the end no stage makes a
// system call, allocates, or touches a page for the first time.

#pragma once

#include "hwtune/affinity.hpp"
#include "hwtune/arrivals.hpp"
#include "hwtune/clock.hpp"
#include "hwtune/engine.hpp"
#include "hwtune/features.hpp"
#include "hwtune/histogram.hpp"
#include "hwtune/messages.hpp"
#include "hwtune/orders.hpp"
#include "hwtune/poll.hpp"
#include "hwtune/spsc_queue.hpp"
#include "hwtune/thread_account.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <thread>
#include <utility>
#include <vector>

namespace hwtune {

enum class Role : std::uint8_t { generator, compute, orders };
inline constexpr std::size_t roles = 3;

[[nodiscard]] constexpr std::string_view name(Role role) noexcept {
    switch (role) {
    case Role::generator:
        return "generator";
    case Role::compute:
        return "compute";
    case Role::orders:
        break;
    }
    return "orders";
}

// due, pushed, popped, featured, scored, taken, done. Each from popped on is read once all before it has completed:
// else a processor that runs ahead books work under the next stage, and the end of it nowhere.
inline constexpr std::size_t stamps = 7;
// Each from one stamp to the next; together they are end to end.
inline constexpr std::size_t stages = stamps - 1;

// A stall made on purpose, to see that it is charged to every tick that it delays: the thread of `role` does
// nothing for `length` from the first tick that it handles at `at` or later.
struct Stall {
    Role role = Role::compute;
    std::chrono::nanoseconds at{0}; // since the first measured tick was due
    std::chrono::nanoseconds length{0};
};

struct PipelinePlan {
    std::array<int, roles> cpus{}; // by Role; equal neighbours share a thread
    ArrivalPlan arrivals{};
    std::chrono::nanoseconds warmup{std::chrono::milliseconds(500)};
    std::chrono::nanoseconds duration{std::chrono::seconds(5)};
    std::size_t tick_capacity = 4096;
    std::size_t order_capacity = 4096;
    std::size_t batch_limit = 32;
    std::uint64_t outlier_threshold_ns = 0; // 0: twice the P99 of the warm-up, and at most the ceiling
    std::uint64_t outlier_ceiling_ns = 0;   // 0: none
    std::size_t outlier_capacity = 4096;
    std::size_t windows = 60;
    bool huge_pages = false;
    bool lock_memory = true;
    Stall stall{};
};

struct Outlier {
    std::uint64_t sequence = 0;
    std::array<std::uint64_t, stamps> at{};

    [[nodiscard]] std::uint64_t length() const noexcept { return at[stamps - 1] - at[0]; }
};

struct ThreadResult {
    std::vector<Role> roles;
    int cpu = 0;
    ThreadCounts counts;
};

struct PipelineResult {
    std::uint64_t started_ticks = 0; // when the first measured tick was due
    std::uint64_t started_ns = 0;    // the same by CLOCK_MONOTONIC
    double duration_s = 0.0;         // from then to the last tick that was due
    std::uint64_t warmup = 0;
    std::uint64_t due = 0;
    std::uint64_t completed = 0;
    std::uint64_t tick_drops = 0;
    std::uint64_t order_drops = 0;
    std::uint64_t tick_high_watermark = 0;
    std::uint64_t order_high_watermark = 0;
    std::uint64_t outlier_threshold_ns = 0;
    std::uint64_t outliers_seen = 0;
    std::vector<Outlier> outliers; // by their time
    std::vector<ThreadResult> threads;
    std::vector<std::uint64_t> batches; // index: rows
    std::uint64_t orders_sent = 0;
    std::uint64_t orders_failed = 0;
    double window_s = 0.0;
    bool interrupted = false;
    bool memory_locked = false;
    bool huge_pages = false;
    std::string memory_why;
    std::string failure;
};

namespace detail {

// A cache line to itself, and the one that a prefetcher may bring along.
struct alignas(2 * cache_line) Shared {
    std::atomic<std::uint64_t> value{0};

    void set(std::uint64_t to) noexcept { value.store(to, std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t get() const noexcept { return value.load(std::memory_order_relaxed); }
};

// What the threads tell each other, and the one who waits for them.
struct Board {
    Shared pushed;    // ticks handed to the queue
    Shared decided;   // decisions handed to the queue
    Shared due;       // measured ticks that fell due
    Shared completed; // measured ticks that went all the way
    // Each set once.
    alignas(2 * cache_line) std::atomic<bool> stop{false}; // asked for from outside, or a stage has failed
    std::atomic<bool> warm{false};                         // the last tick of the warm-up has been pushed
    std::atomic<bool> compute_warm{false};                 // and has been through the engine
    std::atomic<bool> generated{false};
    std::atomic<bool> computed{false};
    // The sections, by the clock: written before the threads are let go.
    alignas(2 * cache_line) std::uint64_t begin = 0;
    std::uint64_t warm_end = 0;
    std::uint64_t measured = 0;
    std::uint64_t end = 0;
    double ticks_per_ns = 1.0;
    double ns_per_tick = 1.0;

    [[nodiscard]] std::uint64_t ticks(double ns) const noexcept { return static_cast<std::uint64_t>(ns * ticks_per_ns); }
    // Of a time in the measured section, since its start; 0 before.
    [[nodiscard]] std::uint64_t measured_ns(std::uint64_t time) const noexcept {
        return time > measured ? static_cast<std::uint64_t>(static_cast<double>(time - measured) * ns_per_tick) : 0;
    }
};

// The stall of a plan, in the stage that it is meant for.
class Staller {
  public:
    Staller(const Stall &stall, Role role, const Board &board)
        : board_(board), stall_(stall), armed_(stall.role == role && stall.length.count() > 0) {}

    // Whether it stalled.
    template <class Counter> bool maybe(Counter &counter, std::uint64_t due) noexcept {
        if (!armed_) {
            return false;
        }
        const std::uint64_t at = board_.measured + board_.ticks(static_cast<double>(stall_.at.count()));
        const bool now = due >= at;
        if (now) {
            armed_ = false;
            const std::uint64_t until = at + board_.ticks(static_cast<double>(stall_.length.count()));
            while (counter.read() < until) {
                cpu_pause();
            }
        }
        return now;
    }

  private:
    const Board &board_;
    Stall stall_;
    bool armed_;
};

// A stage does what is there to be done and says whether that was anything; it never waits. `account` is its
// thread's: begun in the pause before the measured section, or at the first measured tick if there was no pause.
class GeneratorStage {
  public:
    GeneratorStage(const PipelinePlan &plan, Board &board, SpscProducer<Tick> &&out)
        : board_(board), out_(std::move(out)), warmup_(warmup_plan(plan.arrivals)), measured_(plan.arrivals),
          market_(plan.arrivals.seed ^ 0x6D61726B6574U), recorded_(plan.arrivals.recorded),
          staller_(plan.stall, Role::generator, board) {}

    // Once the sections are known.
    void prepare() noexcept { load(); }

    template <class Counter> bool step(Counter &counter, ThreadAccount &account) {
        if (over_ || board_.stop.load(std::memory_order_relaxed)) {
            board_.generated.store(true, std::memory_order_release);
            finished_ = true;
            return true;
        }
        const std::uint64_t now = counter.read();
        if (now < due_) {
            if (measuring_ && !account.begun()) {
                account.begin();
            }
            return false;
        }
        if (measuring_ && !account.begun()) {
            account.begin();
        }
        push(staller_.maybe(counter, due_) ? counter.read() : now);
        load();
        return true;
    }

    [[nodiscard]] bool finished() const noexcept { return finished_; }

    void report(PipelineResult &result) const {
        result.due = due_count_;
        result.tick_drops = drops_;
        result.warmup = warmup_count_;
        if (due_count_ > 0) {
            result.duration_s = static_cast<double>(last_due_ - board_.measured) / board_.ticks_per_ns * 1e-9;
        }
    }

  private:
    // A recording is kept for the measured section.
    [[nodiscard]] static ArrivalPlan warmup_plan(ArrivalPlan plan) {
        if (plan.kind == Arrivals::recorded) {
            plan.kind = Arrivals::fixed;
        }
        plan.seed = ~plan.seed;
        return plan;
    }

    void push(std::uint64_t now) noexcept {
        if (Tick *slot = out_.claim()) {
            // Written when it is due, not ahead: the one who waits looks at the slot all the time, so its line would
            // have to be fetched back once more.
            tick_.pushed = now;
            copy_words<1>(slot, &tick_); // word by word: its fields have just been stored
            out_.commit(sequence_);
            board_.pushed.set(++pushed_);
        } else if (measuring_) {
            ++drops_;
        }
        if (measuring_) {
            board_.due.set(++due_count_);
            last_due_ = due_;
        }
        ++sequence_;
    }

    // The next tick, and when it is due.
    void load() noexcept {
        if (!measuring_) {
            due_ = board_.begin + board_.ticks(static_cast<double>(warmup_.next()));
            if (due_ >= board_.warm_end) {
                measuring_ = true;
                warmup_count_ = sequence_;
                board_.warm.store(true, std::memory_order_release);
            }
        }
        if (measuring_) {
            const std::uint64_t offset = measured_.next();
            due_ = offset == no_more ? board_.end : board_.measured + board_.ticks(static_cast<double>(offset));
            over_ = due_ >= board_.end;
        }
        if (over_) {
            return;
        }
        if (measuring_ && !recorded_.empty()) {
            const RecordedTick &from = recorded_[sequence_ - warmup_count_];
            tick_.bid = from.bid;
            tick_.ask = from.ask;
            tick_.price = from.price;
            tick_.bid_size = from.bid_size;
            tick_.ask_size = from.ask_size;
            tick_.volume = from.volume;
            tick_.aggressor = from.aggressor;
        } else {
            market_.next(tick_);
        }
        tick_.due = due_;
    }

    Board &board_;
    SpscProducer<Tick> out_;
    Schedule warmup_;
    Schedule measured_;
    Market market_;
    std::span<const RecordedTick> recorded_;
    Staller staller_;
    Tick tick_{}; // the next one
    std::uint64_t sequence_ = 0;
    std::uint64_t due_ = 0;
    std::uint64_t last_due_ = 0;
    std::uint64_t pushed_ = 0;
    std::uint64_t drops_ = 0;
    std::uint64_t due_count_ = 0;
    std::uint64_t warmup_count_ = 0;
    bool measuring_ = false;
    bool over_ = false;
    bool finished_ = false;
};

// The most that waited in a queue. The one who takes asks, and only when it finds one waiting right after another: at
// the first of a run and at every sixteenth, as the count that it reads is the other side's line.
class Watermark {
  public:
    // One is there; `taken` were before it.
    void found(const Shared &handed_over, std::uint64_t taken) noexcept {
        if (run_ == 0) {
            highest_ = std::max<std::uint64_t>(highest_, 1);
        } else if ((run_ & 15U) == 1) {
            highest_ = std::max(highest_, handed_over.get() - taken);
        }
        ++run_;
    }
    // None is there.
    void empty() noexcept { run_ = 0; }
    void reset() noexcept { highest_ = 0; }
    [[nodiscard]] std::uint64_t highest() const noexcept { return highest_; }

  private:
    std::uint64_t highest_ = 0;
    std::uint64_t run_ = 0;
};

// Features and inference. As many ticks as wait make a batch, up to the limit: never waits for more.
class ComputeStage {
  public:
    ComputeStage(const PipelinePlan &plan, Board &board, Engine &engine, SpscConsumer<Tick> &&in,
                 SpscProducer<Decision> &&out)
        : board_(board), engine_(engine), in_(std::move(in)), out_(std::move(out)),
          limit_(std::min(plan.batch_limit, engine.max_batch())), slots_(engine.slots()), batches_(limit_ + 1, 0),
          staller_(plan.stall, Role::compute, board) {
        if (limit_ < 1 || slots_ < 1) {
            throw std::invalid_argument("a batch has one row at least");
        }
        under_way_.resize(slots_);
        for (Batch &batch : under_way_) {
            batch.rows.resize(limit_);
        }
    }

    void prepare() noexcept { engine_.attach(); }

    template <class Counter> bool step(Counter &counter, ThreadAccount &account) {
        const bool came_back = count_ > 0 && collect(counter);
        const bool sent = !failed_ && count_ < slots_ && fill(counter, account);
        if (came_back || sent) {
            return true;
        }
        idle(account);
        return false;
    }

    [[nodiscard]] bool finished() const noexcept { return finished_; }

    void report(PipelineResult &result) const {
        result.tick_high_watermark = waiting_.highest();
        result.order_drops = drops_;
        result.batches = batches_;
        if (failed_) {
            result.failure = engine_.error().empty() ? "the engine failed and did not say why" : engine_.error();
        }
    }

  private:
    struct Row {
        std::uint64_t sequence;
        std::uint64_t due;
        std::uint64_t pushed;
        std::uint64_t popped;
        std::uint64_t featured;
        double price;
    };
    struct Batch {
        std::vector<Row> rows;
        std::size_t count = 0;
    };

    template <class Counter> bool fill(Counter &counter, ThreadAccount &account) {
        const Tick *tick = in_.front();
        if (tick == nullptr) {
            return false;
        }
        if (tick->due >= board_.measured && !measuring_) {
            measure(account);
        }
        const std::size_t slot = next_;
        Batch &batch = under_way_[slot];
        float *row = engine_.input(slot);
        batch.count = 0;
        for (; tick != nullptr && batch.count < limit_; row += feature_width) {
            Row &kept = batch.rows[batch.count++];
            kept.popped = counter.read_after();
            static_cast<void>(staller_.maybe(counter, tick->due));
            kept.sequence = sequence_of(tick->sequence);
            kept.due = tick->due;
            kept.pushed = tick->pushed;
            kept.price = tick->price;
            waiting_.found(board_.pushed, taken_++);
            features_.update(*tick, board_.measured_ns(tick->due), row);
            in_.release();
            kept.featured = counter.read_after();
            tick = batch.count < limit_ ? in_.front() : nullptr;
            if (tick != nullptr && !measuring_ && tick->due >= board_.measured) {
                tick = nullptr; // no batch is of both sections
            }
        }
        engine_.submit(slot, batch.count);
        next_ = next_ + 1 == slots_ ? 0 : next_ + 1;
        ++count_;
        if (measuring_) {
            ++batches_[batch.count];
        }
        // An engine that computes at once is through: its answer need not wait for another step.
        return collect(counter) || true;
    }

    // Whether the oldest batch under way has come back; its decisions are then handed over.
    template <class Counter> bool collect(Counter &counter) {
        switch (engine_.poll(oldest_)) {
        case Engine::Status::busy:
            return false;
        case Engine::Status::failed:
            failed_ = true;
            count_ = 0;
            board_.stop.store(true, std::memory_order_relaxed);
            return true;
        case Engine::Status::done:
            break;
        }
        const std::uint64_t scored = counter.read_after();
        const Batch &batch = under_way_[oldest_];
        const float *scores = engine_.output(oldest_);
        for (std::size_t i = 0; i < batch.count; ++i) {
            decide(batch.rows[i], scores[i], scored, batch.count);
        }
        oldest_ = oldest_ + 1 == slots_ ? 0 : oldest_ + 1;
        --count_;
        return true;
    }

    void decide(const Row &row, float score, std::uint64_t scored, std::size_t rows) noexcept {
        Decision *slot = out_.claim();
        if (slot == nullptr) {
            drops_ += row.due >= board_.measured ? 1U : 0U;
            return;
        }
        slot->due = row.due;
        slot->pushed = row.pushed;
        slot->popped = row.popped;
        slot->featured = row.featured;
        slot->scored = scored;
        slot->price = row.price;
        slot->score = score;
        slot->batch = static_cast<std::uint32_t>(rows);
        out_.commit(row.sequence);
        board_.decided.set(++decided_);
    }

    void measure(ThreadAccount &account) {
        measuring_ = true;
        waiting_.reset();
        features_ = FeatureWindow(); // a run with one seed gives the same scores, however long its warm-up was
        engine_.measured();
        if (!account.begun()) {
            account.begin();
        }
    }

    void idle(ThreadAccount &account) {
        waiting_.empty();
        if (count_ > 0) {
            return;
        }
        if (!measuring_ && board_.warm.load(std::memory_order_acquire) && !in_.ready()) {
            measure(account);
            board_.compute_warm.store(true, std::memory_order_release);
        }
        if ((failed_ || !in_.ready()) && board_.generated.load(std::memory_order_acquire) && (failed_ || !in_.ready())) {
            board_.computed.store(true, std::memory_order_release);
            finished_ = true;
        }
    }

    Board &board_;
    Engine &engine_;
    SpscConsumer<Tick> in_;
    SpscProducer<Decision> out_;
    FeatureWindow features_;
    Watermark waiting_;
    std::size_t limit_;
    std::size_t slots_;
    std::size_t next_ = 0;   // slot to fill
    std::size_t oldest_ = 0; // slot to wait for
    std::size_t count_ = 0;  // slots under way
    std::vector<Batch> under_way_;
    std::vector<std::uint64_t> batches_;
    Staller staller_;
    std::uint64_t taken_ = 0;
    std::uint64_t decided_ = 0;
    std::uint64_t drops_ = 0;
    bool measuring_ = false;
    bool failed_ = false;
    bool finished_ = false;
};

// Where latencies are counted. All memory is there, and touched, before the run.
struct Ledger {
    std::array<Histogram, stages> stage;
    Histogram end_to_end;
    std::vector<std::uint32_t> windows;       // end to end: windows x Histogram::buckets()
    std::vector<std::uint32_t> stage_windows; // windows x stages x CoarseBuckets::count()
};

class OrderStage {
  public:
    OrderStage(const PipelinePlan &plan, Board &board, OrderSink &sink, Ledger &ledger, double ns_per_tick,
               SpscConsumer<Decision> &&in)
        : board_(board), sink_(sink), ledger_(ledger), in_(std::move(in)), ns_per_tick_(ns_per_tick),
          windows_(plan.windows), threshold_ns_(plan.outlier_threshold_ns), ceiling_ns_(plan.outlier_ceiling_ns), kept_(plan.outlier_capacity),
          staller_(plan.stall, Role::orders, board) {
        outliers_.reserve(kept_);
        Outlier *room = outliers_.data();
        std::memset(static_cast<void *>(room), 0, kept_ * sizeof(Outlier)); // touches it
    }

    void prepare() noexcept {
        window_ticks_ = static_cast<double>(board_.end - board_.measured) / static_cast<double>(windows_);
    }

    // As many as wait, up to a full batch: where it shares its thread, the stage before has made as many.
    template <class Counter> bool step(Counter &counter, ThreadAccount &account) {
        const Decision *decision = in_.front();
        if (decision == nullptr) {
            idle(account);
            return false;
        }
        for (std::size_t i = 0; i < most_at_once && decision != nullptr; ++i) {
            take(counter, account, decision);
            decision = in_.front();
        }
        return true;
    }

    [[nodiscard]] bool finished() const noexcept { return finished_; }

    void report(PipelineResult &result) {
        result.completed = completed_;
        result.order_high_watermark = waiting_.highest();
        result.outlier_threshold_ns = threshold_ns_;
        result.outliers_seen = outliers_seen_;
        result.window_s = window_ticks_ * ns_per_tick_ * 1e-9;
        std::sort(outliers_.begin(), outliers_.end(),
                  [](const Outlier &a, const Outlier &b) { return a.sequence < b.sequence; });
        result.outliers = outliers_;
    }

  private:
    static constexpr std::size_t most_at_once = 128;

    template <class Counter> void take(Counter &counter, ThreadAccount &account, const Decision *decision) {
        const std::uint64_t taken = counter.read_after();
        if (decision->due >= board_.measured && !measuring_) {
            measure(account);
        }
        static_cast<void>(staller_.maybe(counter, decision->due));
        const std::uint64_t sequence = sequence_of(decision->sequence);
        sink_.send(*decision, sequence);
        const std::uint64_t done = counter.read_after();
        const std::array<std::uint64_t, stamps> at{decision->due,      decision->pushed, decision->popped,
                                                   decision->featured, decision->scored, taken, done};
        in_.release();
        waiting_.found(board_.decided, taken_++);
        record(sequence, at);
    }

    static bool faster(const Outlier &a, const Outlier &b) noexcept { return a.length() > b.length(); }

    [[nodiscard]] std::uint64_t ns(std::uint64_t from, std::uint64_t to) const noexcept {
        // a stamp of another CPU may be a few ticks ahead
        return to > from ? static_cast<std::uint64_t>(static_cast<double>(to - from) * ns_per_tick_ + 0.5) : 0;
    }

    void record(std::uint64_t sequence, const std::array<std::uint64_t, stamps> &at) noexcept {
        const std::uint64_t whole = ns(at.front(), at.back());
        ledger_.end_to_end.record(whole);
        std::array<std::uint64_t, stages> spent{};
        for (std::size_t i = 0; i < stages; ++i) {
            spent[i] = ns(at[i], at[i + 1]);
            ledger_.stage[i].record(spent[i]);
        }
        if (!measuring_) {
            return;
        }
        const auto window = std::min(
            static_cast<std::size_t>(static_cast<double>(at.front() - board_.measured) / window_ticks_), windows_ - 1);
        ++ledger_.windows[window * Histogram::buckets() + Histogram::bucket_index(whole)];
        for (std::size_t i = 0; i < stages; ++i) {
            ++ledger_.stage_windows[(window * stages + i) * CoarseBuckets::count() + CoarseBuckets::index(spent[i])];
        }
        board_.completed.set(++completed_);
        if (whole > threshold_ns_) {
            keep({sequence, at});
        }
    }

    // Of more than there is room for, the slowest stay: a heap with the fastest of them on top.
    void keep(const Outlier &outlier) noexcept {
        ++outliers_seen_;
        if (outliers_.size() < kept_) {
            outliers_.push_back(outlier);
            std::push_heap(outliers_.begin(), outliers_.end(), faster);
        } else if (kept_ > 0 && outlier.length() > outliers_.front().length()) {
            std::pop_heap(outliers_.begin(), outliers_.end(), faster);
            outliers_.back() = outlier;
            std::push_heap(outliers_.begin(), outliers_.end(), faster);
        }
    }

    void measure(ThreadAccount &account) {
        measuring_ = true;
        waiting_.reset();
        if (threshold_ns_ == 0) {
            threshold_ns_ = ledger_.end_to_end.count() > 0 ? 2 * ledger_.end_to_end.value_at(0.99) : 100'000;
            // a bad warm-up must not hide what is too slow by any measure
            threshold_ns_ = ceiling_ns_ == 0 ? threshold_ns_ : std::min(threshold_ns_, ceiling_ns_);
        }
        ledger_.end_to_end.clear();
        for (Histogram &histogram : ledger_.stage) {
            histogram.clear();
        }
        if (!account.begun()) {
            account.begin();
        }
    }

    void idle(ThreadAccount &account) {
        waiting_.empty();
        if (!measuring_ && board_.compute_warm.load(std::memory_order_acquire) && !in_.ready()) {
            measure(account);
        }
        if (board_.computed.load(std::memory_order_acquire) && !in_.ready()) {
            finished_ = true;
        }
    }

    Board &board_;
    OrderSink &sink_;
    Ledger &ledger_;
    SpscConsumer<Decision> in_;
    double ns_per_tick_;
    std::size_t windows_;
    double window_ticks_ = 1.0;
    std::uint64_t threshold_ns_;
    std::uint64_t ceiling_ns_;
    std::size_t kept_;
    std::vector<Outlier> outliers_;
    Staller staller_;
    Watermark waiting_;
    std::uint64_t taken_ = 0;
    std::uint64_t completed_ = 0;
    std::uint64_t outliers_seen_ = 0;
    bool measuring_ = false;
    bool finished_ = false;
};

// A thread's life in the measured section: no call into the system until all its stages are through.
template <class Counter, class... Stages>
void run_stages(Counter &counter, ThreadAccount &account, Stages &...stages) {
    (stages.prepare(), ...);
    Poll poll;
    for (;;) {
        const bool busy = ((!stages.finished() && stages.step(counter, account)) | ...);
        if ((stages.finished() && ...)) {
            return;
        }
        if (busy) {
            poll.found();
        } else {
            poll.empty();
        }
    }
}

} // namespace detail

// One run. Memory is taken from the NUMA node of the compute stage's CPU.
class Pipeline {
  public:
    // The engine and the sink must outlive it. Throws std::invalid_argument for a plan that can't be,
    // std::system_error where a CPU can't be used or memory can't be had.
    Pipeline(PipelinePlan plan, Clock clock, Engine &engine, OrderSink &sink)
        : plan_(checked(std::move(plan))), clock_(std::move(clock)),
          near_(std::make_unique<Pinned>(plan_.cpus[static_cast<std::size_t>(Role::compute)])),
          ticks_(plan_.tick_capacity, plan_.huge_pages ? Backing::huge_pages : Backing::heap),
          decisions_(plan_.order_capacity, plan_.huge_pages ? Backing::huge_pages : Backing::heap) {
        board_.ns_per_tick = clock_.ns_per_tick;
        board_.ticks_per_ns = 1.0 / clock_.ns_per_tick;
        ledger_.windows.assign(plan_.windows * Histogram::buckets(), 0);
        ledger_.stage_windows.assign(plan_.windows * stages * CoarseBuckets::count(), 0);
        generator_ = std::make_unique<detail::GeneratorStage>(plan_, board_, ticks_.producer());
        compute_ = std::make_unique<detail::ComputeStage>(plan_, board_, engine, ticks_.consumer(), decisions_.producer());
        orders_ = std::make_unique<detail::OrderStage>(plan_, board_, sink, ledger_, clock_.ns_per_tick,
                                                       decisions_.consumer());
        sink_ = &sink;
        near_.reset();
    }
    Pipeline(const Pipeline &) = delete;
    Pipeline &operator=(const Pipeline &) = delete;
    ~Pipeline() {
        stop();
        join();
    }

    // Throws std::system_error where a thread can't be made or can't have its CPU; nothing runs then.
    void start() {
        if (started_) {
            throw std::logic_error("a pipeline runs once");
        }
        started_ = true;
        const auto [generator, compute, orders] = plan_.cpus;
        if (generator == compute && compute == orders) {
            launch({Role::generator, Role::compute, Role::orders}, *generator_, *compute_, *orders_);
        } else if (generator == compute) {
            launch({Role::generator, Role::compute}, *generator_, *compute_);
            launch({Role::orders}, *orders_);
        } else if (compute == orders) {
            launch({Role::generator}, *generator_);
            launch({Role::compute, Role::orders}, *compute_, *orders_);
        } else {
            launch({Role::generator}, *generator_);
            launch({Role::compute}, *compute_);
            launch({Role::orders}, *orders_);
        }
        for (std::size_t ready = ready_.load(); ready < threads_.size(); ready = ready_.load()) {
            ready_.wait(ready);
        }
        for (const Life &life : lives_) {
            if (life.error) {
                abandon();
                std::rethrow_exception(life.error);
            }
        }
        lock();
        schedule();
        go_.store(true, std::memory_order_release);
        go_.notify_all();
    }

    // Ends the run after what is under way. For the thread that started it.
    void stop() noexcept {
        if (!over()) {
            interrupted_ = started_;
        }
        board_.stop.store(true, std::memory_order_relaxed);
    }
    [[nodiscard]] bool over() const noexcept { return started_ && ended_.load(std::memory_order_acquire) == threads_.size(); }
    [[nodiscard]] std::uint64_t due() const noexcept { return board_.due.get(); }
    [[nodiscard]] std::uint64_t completed() const noexcept { return board_.completed.get(); }
    [[nodiscard]] std::uint64_t started_ns() const noexcept { return started_ns_; }

    // Waits for the end.
    [[nodiscard]] PipelineResult result() {
        join();
        for (const Life &life : lives_) {
            if (life.error) {
                std::rethrow_exception(life.error);
            }
        }
        PipelineResult result;
        generator_->report(result);
        compute_->report(result);
        orders_->report(result);
        // The side that found no room saw the queue full, whatever the other side saw.
        result.tick_high_watermark = result.tick_drops > 0 ? plan_.tick_capacity : result.tick_high_watermark;
        result.order_high_watermark = result.order_drops > 0 ? plan_.order_capacity : result.order_high_watermark;
        for (std::size_t i = 0; i < threads_.size(); ++i) {
            result.threads.push_back({lives_[i].roles, lives_[i].cpu, lives_[i].counts});
        }
        result.started_ticks = board_.measured;
        result.started_ns = started_ns_;
        result.orders_sent = sink_->sent();
        result.orders_failed = sink_->failed();
        result.interrupted = interrupted_ && result.failure.empty();
        result.memory_locked = locked_;
        result.memory_why = memory_why_;
        result.huge_pages = ticks_.huge_pages() && decisions_.huge_pages();
        return result;
    }
    [[nodiscard]] const detail::Ledger &ledger() const noexcept { return ledger_; }
    [[nodiscard]] const PipelinePlan &plan() const noexcept { return plan_; }
    [[nodiscard]] const Clock &clock() const noexcept { return clock_; }

  private:
    struct Life {
        std::vector<Role> roles;
        int cpu = 0;
        ThreadCounts counts{};
        std::exception_ptr error{};
    };

    [[nodiscard]] static PipelinePlan checked(PipelinePlan plan) {
        const auto [generator, compute, orders] = plan.cpus;
        if (generator == orders && generator != compute) {
            throw std::invalid_argument("the generator and the orders can't share a CPU without the stage between them");
        }
        if (plan.duration.count() <= 0 || plan.duration > std::chrono::hours(24 * 7)) {
            throw std::invalid_argument("the duration must be above 0 and at most a week");
        }
        if (plan.warmup.count() < 0 || plan.warmup > std::chrono::minutes(10)) {
            throw std::invalid_argument("the warm-up must be from 0 to ten minutes");
        }
        if (plan.windows < 1 || plan.windows > 10'000 || plan.outlier_capacity > (std::size_t{1} << 20U)) {
            throw std::invalid_argument("1 to 10,000 windows and at most 1,048,576 outliers can be kept");
        }
        return plan;
    }

    template <class... Stages> void launch(std::vector<Role> of, Stages &...mine) {
        Life &life = lives_.at(threads_.size());
        life.cpu = plan_.cpus[static_cast<std::size_t>(of.front())];
        life.roles = std::move(of);
        try {
            threads_.emplace_back([this, &life, &mine...] { live(life, mine...); });
        } catch (...) { // no thread: those that wait are let go to end
            abandon();
            throw;
        }
    }

    template <class... Stages> void live(Life &life, Stages &...mine) noexcept {
        try {
            prctl(PR_SET_NAME, life.roles.front() == Role::generator ? "hwtune-ticks"
                               : life.roles.front() == Role::compute ? "hwtune-compute"
                                                                     : "hwtune-orders");
            Pinned pinned(life.cpu);
            ThreadAccount account;
            arrive();
            go_.wait(false);
            if (!abandoned_.load(std::memory_order_relaxed)) {
                clock_.with_counter([&](auto &counter) { detail::run_stages(counter, account, mine...); });
                life.counts = account.end();
            }
        } catch (...) {
            life.error = std::current_exception();
            arrive();
            board_.stop.store(true, std::memory_order_relaxed);
        }
        ended_.fetch_add(1, std::memory_order_release);
    }

    void arrive() noexcept {
        ready_.fetch_add(1, std::memory_order_release);
        ready_.notify_all();
    }

    void abandon() noexcept {
        abandoned_.store(true, std::memory_order_relaxed);
        go_.store(true, std::memory_order_release);
        go_.notify_all();
        join();
    }

    void join() noexcept {
        for (std::thread &thread : threads_) {
            if (thread.joinable()) {
                thread.join();
            }
        }
        if (std::exchange(locked_now_, false)) {
            munlockall();
        }
    }

    // All that is mapped by now, the threads' stacks too.
    void lock() {
        if (!plan_.lock_memory) {
            memory_why_ = "not asked for";
        } else if (mlockall(MCL_CURRENT) == 0) {
            locked_ = locked_now_ = true;
        } else {
            memory_why_ = std::string(std::strerror(errno)) + " (the limit on locked memory: ulimit -l)";
        }
    }

    void schedule() {
        clock_.with_counter([this](auto &counter) {
            MonotonicClock monotonic;
            const Pair now = tightest_pair(counter, monotonic);
            board_.begin = counter.read() + board_.ticks(2e6);
            board_.warm_end = board_.begin + board_.ticks(static_cast<double>(plan_.warmup.count()));
            board_.measured = board_.warm_end + board_.ticks(5e6);
            board_.end = board_.measured + board_.ticks(static_cast<double>(plan_.duration.count()));
            started_ns_ = now.reference_ns + static_cast<std::uint64_t>(clock_.ns(board_.measured - now.before));
        });
    }

    PipelinePlan plan_;
    Clock clock_;
    std::unique_ptr<Pinned> near_;
    SpscQueue<Tick> ticks_;
    SpscQueue<Decision> decisions_;
    detail::Board board_;
    detail::Ledger ledger_;
    OrderSink *sink_ = nullptr;
    std::unique_ptr<detail::GeneratorStage> generator_;
    std::unique_ptr<detail::ComputeStage> compute_;
    std::unique_ptr<detail::OrderStage> orders_;
    std::array<Life, roles> lives_{}; // as many as there are threads
    std::vector<std::thread> threads_;
    std::atomic<std::size_t> ready_{0};
    std::atomic<std::size_t> ended_{0};
    std::atomic<bool> go_{false};
    std::atomic<bool> interrupted_{false};
    std::uint64_t started_ns_ = 0;
    std::string memory_why_;
    std::atomic<bool> abandoned_{false};
    bool started_ = false;
    bool locked_ = false;
    bool locked_now_ = false;
};

} // namespace hwtune
