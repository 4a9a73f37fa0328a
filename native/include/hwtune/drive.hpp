// How long single reads of a drive take, on a schedule that does not wait for it.
//
// One read is under way at a time. Latency counts from when a read was due, so what a stalled drive delays is
// charged to it. The reader never sleeps: with io_uring it watches the completion ring and the clock, and what
// takes the CPU away meanwhile shows as a gap between two looks. So the host's own noise can be told from the drive's:
// of a read's latency, what gaps overlap is the host's. Submission is told too, as io_uring submits without waiting for
// the drive: what is long there is the host's again. Without io_uring reads go by pread(2), the reader sleeps in the
// kernel, and gaps during reads stay unknown.

#pragma once

#include "hwtune/affinity.hpp"
#include "hwtune/clock.hpp"
#include "hwtune/pages.hpp"
#include "hwtune/poll.hpp"
#include "hwtune/random.hpp"
#include "hwtune/spin.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <linux/io_uring.h>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace hwtune {

// The least of io_uring(7) that one read at a time needs, by its system calls: io_uring_setup(2), io_uring_enter(2).
class ReadRing {
  public:
    // Throws std::system_error: ENOSYS before Linux 5.1, EPERM where kernel.io_uring_disabled or a filter forbids it.
    ReadRing() {
        io_uring_params params{};
        ring_ = static_cast<int>(syscall(SYS_io_uring_setup, 4U, &params));
        if (ring_ < 0) {
            throw std::system_error(errno, std::generic_category(), "io_uring");
        }
        submissions_ = map(params.sq_off.array + params.sq_entries * sizeof(std::uint32_t), IORING_OFF_SQ_RING);
        completions_ = map(params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING);
        entries_ = map(params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
        if (submissions_.base == nullptr || completions_.base == nullptr || entries_.base == nullptr) {
            const int error = errno;
            close();
            throw std::system_error(error, std::generic_category(), "io_uring's rings");
        }
        sq_tail_ = submissions_.word(params.sq_off.tail);
        sq_mask_ = *submissions_.word(params.sq_off.ring_mask);
        sq_array_ = submissions_.word(params.sq_off.array);
        cq_head_ = completions_.word(params.cq_off.head);
        cq_tail_ = completions_.word(params.cq_off.tail);
        cq_mask_ = *completions_.word(params.cq_off.ring_mask);
        cqes_ = reinterpret_cast<io_uring_cqe *>(static_cast<std::byte *>(completions_.base) + params.cq_off.cqes);
    }
    ReadRing(const ReadRing &) = delete;
    ReadRing &operator=(const ReadRing &) = delete;
    ~ReadRing() { close(); }

    // 0, or an error number.
    [[nodiscard]] int submit(int file, void *buffer, std::uint32_t bytes, std::uint64_t offset) noexcept {
        const std::uint32_t tail = *sq_tail_;
        const std::uint32_t index = tail & sq_mask_;
        io_uring_sqe &entry = static_cast<io_uring_sqe *>(entries_.base)[index];
        entry = {};
        entry.opcode = IORING_OP_READ;
        entry.fd = file;
        entry.addr = reinterpret_cast<std::uint64_t>(buffer);
        entry.len = bytes;
        entry.off = offset;
        sq_array_[index] = index;
        std::atomic_ref<std::uint32_t>(*sq_tail_).store(tail + 1, std::memory_order_release);
        for (;;) {
            if (syscall(SYS_io_uring_enter, ring_, 1U, 0U, 0U, nullptr, 0) == 1) {
                return 0;
            }
            if (errno != EINTR && errno != EAGAIN) {
                return errno;
            }
        }
    }

    // Whether the read has ended; its result as of pread(2), with the error number negative.
    [[nodiscard]] bool ended(std::int32_t &result) noexcept {
        const std::uint32_t head = *cq_head_;
        if (std::atomic_ref<std::uint32_t>(*cq_tail_).load(std::memory_order_acquire) == head) {
            return false;
        }
        result = cqes_[head & cq_mask_].res;
        std::atomic_ref<std::uint32_t>(*cq_head_).store(head + 1, std::memory_order_release);
        return true;
    }

  private:
    struct Mapping {
        void *base = nullptr;
        std::size_t bytes = 0;

        [[nodiscard]] std::uint32_t *word(std::uint32_t offset) const noexcept {
            return reinterpret_cast<std::uint32_t *>(static_cast<std::byte *>(base) + offset);
        }
    };

    [[nodiscard]] Mapping map(std::size_t bytes, std::uint64_t offset) const noexcept {
        void *base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_, static_cast<off_t>(offset));
        return {base == MAP_FAILED ? nullptr : base, bytes};
    }

    void close() noexcept {
        for (const Mapping &mapping : {submissions_, completions_, entries_}) {
            if (mapping.base != nullptr) {
                munmap(mapping.base, mapping.bytes);
            }
        }
        ::close(ring_);
    }

    int ring_ = -1;
    Mapping submissions_;
    Mapping completions_;
    Mapping entries_;
    std::uint32_t *sq_tail_ = nullptr;
    std::uint32_t *sq_array_ = nullptr;
    std::uint32_t sq_mask_ = 0;
    std::uint32_t *cq_head_ = nullptr;
    std::uint32_t *cq_tail_ = nullptr;
    std::uint32_t cq_mask_ = 0;
    io_uring_cqe *cqes_ = nullptr;
};

struct DrivePlan {
    int file = -1;                      // open for reading, O_DIRECT where the drive itself is asked
    int cpu = 0;
    std::uint64_t bytes = 0;            // of it that may be read, from its start
    std::uint32_t block = 4096;         // size and alignment of a read
    std::span<const std::uint64_t> due; // nanoseconds from the start, ascending
    std::uint64_t seed = 1;
    bool io_uring = true;               // false: pread(2), as where io_uring is refused
};

// One entry for each read that was made, in the order of the schedule.
struct DriveResult {
    std::uint64_t started_ns = 0;             // CLOCK_MONOTONIC at offset 0 of the schedule
    std::uint64_t ended_ns = 0;               // the last look at the clock, since then
    std::vector<std::uint64_t> due_ns;        // since then
    std::vector<std::uint64_t> latency_ns;    // from due to completion
    std::vector<std::uint64_t> wait_ns;       // of that, before it could be submitted: the one before was under way
    std::vector<std::uint64_t> submit_ns;     // of that, in the call that submits; zeros with pread
    std::vector<std::uint64_t> gap_starts_ns; // every time the reader was off its CPU, also between reads
    std::vector<std::uint64_t> gap_lengths_ns;
    std::uint64_t gaps_lost = 0;     // seen after there was no room
    std::uint64_t threshold_ns = 0;  // a step of the reader's loop longer than this is a gap
    std::uint64_t failed = 0;        // reads that ended in an error or short: not among the others
    int error = 0;                   // of the last of them
    std::uint64_t unfinished_ns = 0; // how long a read had been under way that was given up when told to stop
    bool io_uring = false;
    std::string why; // there is no io_uring
    bool stopped = false;
    bool affinity_restored = true;
};

namespace detail {

// Gaps that are kept: those of the completions' interrupts, of ticks and more.
[[nodiscard]] inline std::size_t drive_gaps(std::size_t reads) noexcept {
    return std::min(std::size_t{1} << 22U, (std::size_t{1} << 19U) + 4 * reads);
}

// The reader's loop, in ticks of `counter`.
template <class Counter> class DriveReader {
  public:
    DriveReader(Counter &counter, const Clock &clock, const DrivePlan &plan, ReadRing *ring, void *buffer, DriveResult &result)
        : counter_(counter), clock_(clock), plan_(plan), ring_(ring), buffer_(buffer), result_(result), random_(plan.seed) {}

    void run(const std::atomic<bool> &stop) {
        threshold_ = threshold_for(measure_step(counter_));
        result_.threshold_ns = ns(threshold_);
        begin_ = counter_.read() + ticks(1'000'000);
        last_ = counter_.read();
        for (const std::uint64_t due : plan_.due) {
            const std::uint64_t at = begin_ + ticks(due);
            const std::uint64_t free = last_;
            while (look() < at) {
                cpu_pause();
                if (stop.load(std::memory_order_relaxed)) {
                    result_.stopped = true;
                    break;
                }
            }
            if (!result_.stopped) {
                read(due, at, free, stop);
            }
            if (result_.stopped) {
                break;
            }
        }
        result_.ended_ns = last_ > begin_ ? ns(last_ - begin_) : 0;
    }

    [[nodiscard]] std::uint64_t begin() const noexcept { return begin_; }

  private:
    void read(std::uint64_t due, std::uint64_t at, std::uint64_t free, const std::atomic<bool> &stop) {
        const std::uint64_t offset = random_.below(blocks()) * std::uint64_t{plan_.block};
        std::int32_t got = 0;
        std::uint64_t submitting = 0;
        if (ring_ != nullptr) {
            const int refused = ring_->submit(plan_.file, buffer_, plan_.block, offset);
            const std::uint64_t submitted = counter_.read();
            submitting = submitted - last_;
            last_ = submitted; // no gap: it is told by itself
            got = refused != 0 ? -refused : wait(at, stop);
            if (result_.stopped) {
                return;
            }
        } else {
            const ssize_t size = pread(plan_.file, buffer_, plan_.block, static_cast<off_t>(offset));
            got = size < 0 ? -errno : static_cast<std::int32_t>(size);
            last_ = counter_.read(); // asleep in pread is not off the CPU
        }
        const std::uint64_t end = look();
        if (got != static_cast<std::int32_t>(plan_.block)) {
            ++result_.failed;
            result_.error = got < 0 ? -got : 0;
            return;
        }
        result_.due_ns.push_back(due);
        result_.latency_ns.push_back(ns(end - at));
        result_.wait_ns.push_back(free > at ? ns(free - at) : 0);
        result_.submit_ns.push_back(ns(submitting));
    }

    // Told to stop, it gives up the read that is under way: a drive that no longer answers must not hold the program.
    std::int32_t wait(std::uint64_t at, const std::atomic<bool> &stop) {
        std::int32_t got = 0;
        while (!ring_->ended(got)) {
            static_cast<void>(look());
            if (stop.load(std::memory_order_relaxed)) [[unlikely]] {
                result_.stopped = true;
                result_.unfinished_ns = std::max(ns(last_ - std::min(at, last_)), std::uint64_t{1});
                return 0;
            }
        }
        return got;
    }

    std::uint64_t look() noexcept {
        const std::uint64_t now = std::max(counter_.read(), last_);
        if (now - last_ > threshold_) {
            if (result_.gap_starts_ns.size() < result_.gap_starts_ns.capacity()) {
                result_.gap_starts_ns.push_back(last_ > begin_ ? ns(last_ - begin_) : 0);
                result_.gap_lengths_ns.push_back(ns(now - std::max(last_, std::min(begin_, now))));
            } else {
                ++result_.gaps_lost;
            }
        }
        last_ = now;
        return now;
    }

    [[nodiscard]] std::uint32_t blocks() const noexcept {
        const std::uint64_t all = plan_.bytes / plan_.block;
        return all > 0xFFFFFFFFU ? 0xFFFFFFFFU : static_cast<std::uint32_t>(all);
    }
    [[nodiscard]] std::uint64_t ns(std::uint64_t span) const noexcept { return static_cast<std::uint64_t>(clock_.ns(span)); }
    [[nodiscard]] std::uint64_t ticks(std::uint64_t span_ns) const noexcept {
        return static_cast<std::uint64_t>(static_cast<double>(span_ns) / clock_.ns_per_tick);
    }

    Counter &counter_;
    const Clock &clock_;
    const DrivePlan &plan_;
    ReadRing *ring_;
    void *buffer_;
    DriveResult &result_;
    Random random_;
    std::uint64_t threshold_ = 0;
    std::uint64_t begin_ = 0;
    std::uint64_t last_ = 0; // the last look at the clock
};

// For as long as the program runs: the kernel may yet write to the buffer of a read that was given up.
inline void keep(std::unique_ptr<Pages> buffer, std::unique_ptr<ReadRing> ring) {
    using Kept = std::vector<std::pair<std::unique_ptr<Pages>, std::unique_ptr<ReadRing>>>;
    static std::mutex mutex;
    static Kept *const kept = new Kept; // never destroyed
    const std::lock_guard lock(mutex);
    kept->emplace_back(std::move(buffer), std::move(ring));
}

} // namespace detail

// Reads by the plan, on the calling thread. Throws std::invalid_argument for a plan that can't be, std::system_error
// where the CPU or memory is refused.
[[nodiscard]] inline DriveResult read_drive(const DrivePlan &plan, const Clock &clock, const std::atomic<bool> &stop) {
    constexpr std::size_t most = std::size_t{1} << 24U;
    if (plan.block < 512 || plan.block > (1U << 20U) || (plan.block & (plan.block - 1)) != 0) {
        throw std::invalid_argument("a read has a power of two of bytes, from 512 to 1,048,576");
    }
    if (plan.bytes < plan.block) {
        throw std::invalid_argument("there is less than one block to read");
    }
    if (plan.due.empty() || plan.due.size() > most) {
        throw std::invalid_argument("a schedule has from 1 to 16,777,216 reads");
    }
    for (std::size_t i = 1; i < plan.due.size(); ++i) {
        if (plan.due[i] < plan.due[i - 1]) {
            throw std::invalid_argument("a schedule goes forward");
        }
    }
    if (plan.due.back() > 86'400'000'000'000U) {
        throw std::invalid_argument("a schedule lasts a day at most");
    }
    DriveResult result;
    for (std::vector<std::uint64_t> *column : {&result.due_ns, &result.latency_ns, &result.wait_ns, &result.submit_ns}) {
        column->resize(plan.due.size()); // touches it
        column->clear();
    }
    for (std::vector<std::uint64_t> *column : {&result.gap_starts_ns, &result.gap_lengths_ns}) {
        column->resize(detail::drive_gaps(plan.due.size()));
        column->clear();
    }
    auto buffer = std::make_unique<Pages>(plan.block);
    std::unique_ptr<ReadRing> ring;
    if (!plan.io_uring) {
        result.why = "not asked for";
    } else {
        try {
            ring = std::make_unique<ReadRing>();
            result.io_uring = true;
        } catch (const std::system_error &error) {
            result.why = error.what();
        }
    }
    Pinned pinned(plan.cpu);
    clock.with_counter([&](auto &counter) {
        MonotonicClock monotonic;
        const Pair now = tightest_pair(counter, monotonic);
        detail::DriveReader reader(counter, clock, plan, ring.get(), buffer->data(), result);
        reader.run(stop);
        result.started_ns = now.reference_ns + static_cast<std::uint64_t>(clock.ns(reader.begin() - now.before));
    });
    result.affinity_restored = pinned.restore();
    if (result.unfinished_ns != 0) {
        detail::keep(std::move(buffer), std::move(ring));
    }
    return result;
}

} // namespace hwtune
