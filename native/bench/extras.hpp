// The measurements that compare hwtune with itself and with the bare instruction: a shared queue between processes, the
// histogram, the clock.

#pragma once

#include "queue_bench.hpp"

#include "hwtune/histogram.hpp"
#include "hwtune/shared_queue.hpp"

#include <sys/mman.h>
#include <sys/wait.h>

namespace bench {

// The round trip of QueueBench through two shared queues, one end of each in a child.
namespace shared {

using T = Message<64>;

template <class Sender, class Receiver> void call(Sender &sender, Receiver &receiver, std::vector<std::uint64_t> &spans, Sample &sample) {
    const std::uint64_t end = Counter::read() + ticks(burst_ns);
    Watch watch(Counter::read() + ticks(patience_ns));
    std::size_t count = 0;
    std::uint64_t last = Counter::read();
    for (bool stop = false; !stop && sample.complete;) {
        stop = last > end || count + 1 == spans.size();
        T *slot = sender.claim();
        if (slot == nullptr) {
            die("a queue with one message is full");
        }
        fill_with(*slot, stop ? 1 : 0);
        sender.commit(count);
        const T *seen = receiver.front();
        while (seen == nullptr && sample.complete) {
            sample.complete = watch.empty();
            seen = receiver.front();
        }
        if (seen != nullptr) {
            expect(seen->sequence, count);
            receiver.release();
        }
        const std::uint64_t now = Counter::read();
        spans[count++] = now - last;
        last = now;
    }
    spans.resize(count);
    spans.erase(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(count, 256)));
}

template <class Sender, class Receiver> void answer(Sender &sender, Receiver &receiver) {
    Watch watch(Counter::read() + ticks(patience_ns));
    for (std::uint64_t next = 0, body = 0; body != 1;) {
        const T *seen = receiver.front();
        if (seen == nullptr) {
            if (!watch.empty()) {
                return;
            }
            continue;
        }
        expect(seen->sequence, next);
        body = seen->body.back();
        receiver.release();
        T *slot = sender.claim();
        if (slot == nullptr) {
            die("a queue with one message is full");
        }
        fill_with(*slot, body);
        sender.commit(next++);
    }
}

inline Sample threads(Cpus cpus) {
    hwtune::SpscQueue<T> there(1024);
    hwtune::SpscQueue<T> back(1024);
    std::vector<std::uint64_t> spans(1U << 19U);
    Sample sample = burst(
        cpus,
        [&](Sample &seen) {
            auto sender = there.producer();
            auto receiver = back.consumer();
            call(sender, receiver, spans, seen);
        },
        [&](Sample &) {
            auto sender = back.producer();
            auto receiver = there.consumer();
            answer(sender, receiver);
        });
    percentiles(spans, sample);
    return sample;
}

inline Sample processes(Cpus cpus) {
    const auto there = hwtune::SharedQueue::anonymous(sizeof(T), 1024);
    const auto back = hwtune::SharedQueue::anonymous(sizeof(T), 1024);
    void *memory = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        die("no shared memory");
    }
    auto *meeting = new (memory) Meeting;
    std::vector<std::uint64_t> spans(1U << 19U);
    std::fflush(stdout);
    const itimerval limit{{0, 0}, {5, 0}};
    setitimer(ITIMER_REAL, &limit, nullptr);
    const pid_t child = fork();
    if (child == 0) {
        setitimer(ITIMER_REAL, &limit, nullptr); // timers are not inherited
        const hwtune::Pinned pinned(cpus.second);
        // Mappings of its own, as another program would have.
        auto receiver = hwtune::SharedQueue::from_descriptor(there.descriptor()).consumer<T>();
        auto sender = hwtune::SharedQueue::from_descriptor(back.descriptor()).producer<T>();
        second_side(*meeting, [&] { answer(*sender, *receiver); });
        std::_Exit(0);
    }
    Sample sample;
    {
        auto sender = there.producer<T>();
        auto receiver = back.consumer<T>();
        first_side(*meeting, sample, [&] { call(*sender, *receiver, spans, sample); });
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        die("the other process failed");
    }
    const itimerval off{};
    setitimer(ITIMER_REAL, &off, nullptr);
    munmap(memory, sizeof(Meeting));
    percentiles(spans, sample);
    return sample;
}

} // namespace shared

// Nanoseconds a step of a loop on this CPU alone.
template <class Step> Sample loop(std::uint64_t count, Step &&step) {
    Sample sample;
    const Fifo fifo;
    for (std::uint64_t i = 0; i < count / 8; ++i) { // warm up
        step(i);
    }
    const std::int64_t before = preemptions();
    const std::uint64_t begin = Counter::read_ordered();
    for (std::uint64_t i = 0; i < count; ++i) {
        step(i);
    }
    sample.value = static_cast<double>(Counter::read_ordered() - begin) * ns_per_tick() / static_cast<double>(count);
    sample.preempted = preemptions() - before;
    sample.count = count;
    return sample;
}

// Latencies spread evenly over the powers of two from 64 ns to 1 ms, in no order.
inline const std::vector<std::uint64_t> &spread_values() {
    static const std::vector<std::uint64_t> values = [] {
        std::vector<std::uint64_t> made(1U << 14U);
        std::uint64_t state = 88172645463325252U;
        for (std::uint64_t &value : made) {
            state ^= state << 13U;
            state ^= state >> 7U;
            state ^= state << 17U; // xorshift64 (Marsaglia, 2003)
            const unsigned power = 6 + static_cast<unsigned>(state % 14);
            value = (std::uint64_t{1} << power) + ((state >> 8U) & ((std::uint64_t{1} << power) - 1));
        }
        return made;
    }();
    return values;
}

inline Sample record_histogram(Cpus) {
    static hwtune::Histogram histogram;
    const std::vector<std::uint64_t> &values = spread_values();
    return loop(1U << 20U, [&](std::uint64_t i) {
        histogram.record(values[i & (values.size() - 1)]);
        asm volatile("" ::: "memory"); // each one is counted
    });
}
inline Sample record_array(Cpus) {
    static std::vector<std::uint64_t> kept(1U << 14U);
    const std::vector<std::uint64_t> &values = spread_values();
    return loop(1U << 20U, [&](std::uint64_t i) {
        kept[i & (kept.size() - 1)] = values[i & (values.size() - 1)];
        asm volatile("" ::: "memory"); // each one is stored
    });
}

inline Sample read_clock(Cpus) {
    static const hwtune::Clock clock = hwtune::make_clock();
    std::uint64_t sum = 0;
    Sample sample = loop(1U << 19U, [&](std::uint64_t) { sum += clock.ticks(); });
    asm volatile("" ::"r"(sum));
    return sample;
}
inline Sample read_counter(Cpus) {
    std::uint64_t sum = 0;
    Sample sample = loop(1U << 19U, [&](std::uint64_t) { sum += Counter::read(); });
    asm volatile("" ::"r"(sum));
    return sample;
}

inline void add_extras() {
    const auto add = [](const char *test, const char *subject, Sample (*run)(Cpus)) {
        cells().push_back({test, subject, 0, 0, run});
    };
    add("shared", "threads", shared::threads);
    add("shared", "processes", shared::processes);
    add("record", "histogram", record_histogram);
    add("record", "array", record_array);
    add("clock", "hwtune", read_clock);
    add("clock", "counter", read_counter);
}

} // namespace bench
