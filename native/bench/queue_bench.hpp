// The measurements of a queue, the same code for each. A queue joins by a file of its own, here in peers/ or in the
// folder of -DPEER_DIR=, that ends in HWTUNE_PEER("name", Adapter) with
//
//   template <class T, std::size_t capacity> class Adapter {     // made once a burst, on the heap
//       class Sender   { explicit Sender(Adapter &);    template <class Fill, class Full>
//                      bool send(std::uint64_t sequence, Fill fill, Full full); };
//       class Receiver { explicit Receiver(Adapter &);  template <class Use> bool receive(Use use); };
//   };
//
// send: fill(T &) sets all fields but T::sequence, in the slot if the queue can do that; while the queue is full,
// full() waits, and where that says false send gives up and returns false. receive: calls use(const T &), in place if
// it can, and returns true; false at once when the queue is empty. Sender and Receiver are made by the threads that use
// them.

#pragma once

#include "harness.hpp"

#include <array>

namespace bench {

template <std::size_t bytes> struct Message {
    static constexpr std::size_t words = bytes / 8 - 1;
    std::uint64_t sequence;
    std::array<std::uint64_t, words> body; // all the same: 0, or 1 in the last message
};

template <class T> void fill_with(T &message, std::uint64_t value) {
    for (std::uint64_t &word : message.body) {
        word = value;
    }
}

// The sequence without the bit that one of the queues uses.
inline constexpr std::uint64_t sequence_mask = ~(std::uint64_t{1} << 63U);

inline void expect(std::uint64_t seen, std::uint64_t expected) {
    if ((seen & sequence_mask) != expected) [[unlikely]] {
        die("message " + std::to_string(expected) + " came as " + std::to_string(seen));
    }
}

// Arithmetic that nothing can shorten, about 10 ns: what a stage does with a message.
inline std::uint64_t work(std::uint64_t value) noexcept {
    for (int i = 0; i < 8; ++i) {
        value = value * 6364136223846793005U + 1442695040888963407U;
        asm volatile("" : "+r"(value));
    }
    return value;
}

enum class Load : std::uint8_t { none, producer, consumer };

template <template <class, std::size_t> class Adapter, class T, std::size_t capacity> class QueueBench {
  public:
    using Queue = Adapter<T, capacity>;

    // Nanoseconds a message while the producer sends for burst_ns, with work at neither or one end.
    [[nodiscard]] static Sample throughput(Cpus cpus, Load load) {
        const auto queue = std::make_unique<Queue>();
        return burst(cpus, [&](Sample &sample) { produce(*queue, load, sample); },
                     [&](Sample &sample) { consume(*queue, load, sample); });
    }

    // There and back through two queues, one message on its way.
    [[nodiscard]] static Sample round_trip(Cpus cpus) {
        const auto there = std::make_unique<Queue>();
        const auto back = std::make_unique<Queue>();
        std::vector<std::uint64_t> spans(1U << 19U);
        Sample sample = burst(cpus, [&](Sample &seen) { call(*there, *back, spans, seen); },
                              [&](Sample &seen) { answer(*there, *back, seen); });
        percentiles(spans, sample);
        return sample;
    }

    // From send to receipt, a message every 10 us. Both readings of the clock are ordered: else the second one is taken
    // ahead of the load that it should follow, and a third of the latency is gone from the figure.
    [[nodiscard]] static Sample one_way(Cpus cpus) {
        const auto queue = std::make_unique<Queue>();
        std::vector<std::uint64_t> spans(8192);
        Sample sample = burst(cpus, [&](Sample &seen) { pace(*queue, seen); }, [&](Sample &seen) { clock(*queue, spans, seen); });
        percentiles(spans, sample);
        return sample;
    }

    // Push and pop by one thread, nanoseconds a pair.
    [[nodiscard]] static Sample pair() {
        constexpr std::uint64_t pairs = 300'000 + warm_up;
        const auto queue = std::make_unique<Queue>();
        typename Queue::Sender sender(*queue);
        typename Queue::Receiver receiver(*queue);
        Sample sample;
        const Fifo fifo;
        const std::int64_t before = preemptions();
        std::uint64_t begin = 0;
        for (std::uint64_t i = 0; i < pairs; ++i) {
            if (i == warm_up) {
                begin = Counter::read_ordered();
            }
            static_cast<void>(sender.send(i, [i](T &message) { fill_with(message, i); }, [] { return false; }));
            if (!receiver.receive([i](const T &message) { expect(message.sequence, i); })) {
                die("a message that was pushed is not there");
            }
        }
        sample.count = pairs - warm_up;
        sample.value = static_cast<double>(Counter::read_ordered() - begin) * ns_per_tick() / static_cast<double>(sample.count);
        sample.preempted = preemptions() - before;
        return sample;
    }

  private:
    static constexpr std::uint64_t warm_up = 4096; // messages

    static void produce(Queue &queue, Load load, Sample &sample) {
        typename Queue::Sender sender(queue);
        const std::uint64_t end = Counter::read() + ticks(burst_ns);
        Watch watch(Counter::read() + ticks(patience_ns));
        std::uint64_t value = 1;
        bool last = false;
        for (std::uint64_t sequence = 0; !last; ++sequence) {
            last = sequence % 256 == 0 && Counter::read() > end;
            if (load == Load::producer) {
                value = work(value);
            }
            const std::uint64_t body = last ? 1 : value << 1U;
            if (!sender.send(sequence, [&](T &message) { fill_with(message, body); }, [&] { return watch.full(); })) {
                sample.complete = false;
                return;
            }
        }
    }

    static void consume(Queue &queue, Load load, Sample &sample) {
        typename Queue::Receiver receiver(queue);
        Watch watch(Counter::read() + ticks(patience_ns));
        std::uint64_t next = 0;
        std::uint64_t begin = 0;
        std::uint64_t body = 0;
        std::uint64_t result = 0;
        while (body != 1) {
            if (receiver.receive([&](const T &message) {
                    expect(message.sequence, next);
                    body = message.body.back();
                })) {
                watch.found();
                if (load == Load::consumer) {
                    result = work(result ^ body);
                }
                if (++next == warm_up) {
                    begin = Counter::read();
                }
            } else if (!watch.empty()) {
                sample.complete = false;
                return;
            }
        }
        asm volatile("" ::"r"(result));
        sample.complete = sample.complete && next > 2 * warm_up;
        sample.count = next - warm_up;
        sample.value = static_cast<double>(Counter::read() - begin) * ns_per_tick() / static_cast<double>(sample.count);
    }

    static void call(Queue &there, Queue &back, std::vector<std::uint64_t> &spans, Sample &sample) {
        typename Queue::Sender sender(there);
        typename Queue::Receiver receiver(back);
        const std::uint64_t end = Counter::read() + ticks(burst_ns);
        Watch watch(Counter::read() + ticks(patience_ns));
        std::size_t count = 0;
        std::uint64_t last = Counter::read();
        for (bool stop = false; !stop;) {
            stop = last > end || count + 1 == spans.size();
            if (!sender.send(count, [&](T &message) { fill_with(message, stop ? 1 : 0); }, [&] { return watch.full(); })) {
                sample.complete = false;
                break;
            }
            while (!receiver.receive([&](const T &message) { expect(message.sequence, count); })) {
                if (!watch.empty()) {
                    sample.complete = false;
                    stop = true;
                    break;
                }
            }
            const std::uint64_t now = Counter::read();
            spans[count++] = now - last;
            last = now;
        }
        spans.resize(count);
        spans.erase(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(count, 256)));
    }

    static void answer(Queue &there, Queue &back, Sample &sample) {
        typename Queue::Receiver receiver(there);
        typename Queue::Sender sender(back);
        Watch watch(Counter::read() + ticks(patience_ns));
        std::uint64_t body = 0;
        for (std::uint64_t next = 0; body != 1;) {
            std::uint64_t sequence = 0;
            if (receiver.receive([&](const T &message) {
                    sequence = message.sequence;
                    body = message.body.back();
                })) {
                expect(sequence, next++);
                if (!sender.send(sequence & sequence_mask, [&](T &message) { fill_with(message, body); },
                                 [&] { return watch.full(); })) {
                    sample.complete = false;
                    return;
                }
            } else if (!watch.empty()) {
                sample.complete = false;
                return;
            }
        }
    }

    static void pace(Queue &queue, Sample &sample) {
        typename Queue::Sender sender(queue);
        const std::uint64_t begin = Counter::read();
        const std::uint64_t interval = ticks(10'000);
        Watch watch(begin + ticks(patience_ns));
        const std::uint64_t end = begin + ticks(2 * burst_ns);
        bool stop = false;
        for (std::uint64_t i = 0; !stop; ++i) {
            const std::uint64_t due = begin + (i + 1) * interval;
            while (Counter::read() < due) {
                cpu_pause();
            }
            stop = due > end;
            // The time of sending is the body, even but for the last.
            const bool sent = sender.send(
                i, [&](T &message) { fill_with(message, stop ? 1 : Counter::read_ordered() << 1U); }, [&] { return watch.full(); });
            if (!sent) {
                sample.complete = false;
                return;
            }
        }
    }

    static void clock(Queue &queue, std::vector<std::uint64_t> &spans, Sample &sample) {
        typename Queue::Receiver receiver(queue);
        Watch watch(Counter::read() + ticks(patience_ns));
        std::size_t count = 0;
        std::uint64_t body = 0;
        for (std::uint64_t next = 0; body != 1;) {
            if (receiver.receive([&](const T &message) {
                    expect(message.sequence, next);
                    body = message.body.back();
                })) {
                const std::uint64_t now = Counter::read_ordered();
                if (body != 1 && count < spans.size()) {
                    spans[count++] = now - (body >> 1U);
                }
                ++next;
            } else if (!watch.empty()) {
                sample.complete = false;
                break;
            }
        }
        spans.resize(count);
        spans.erase(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(count, 64)));
    }
};

// One cell of the table: a measurement of one queue at one size.
struct Cell {
    std::string test;
    std::string queue;
    std::size_t bytes = 0;
    std::size_t capacity = 0;
    std::function<Sample(Cpus)> run;
};

inline std::vector<Cell> &cells() {
    static std::vector<Cell> all;
    return all;
}

template <template <class, std::size_t> class Adapter, std::size_t bytes, std::size_t capacity> void add_size(const std::string &queue) {
    using Bench = QueueBench<Adapter, Message<bytes>, capacity>;
    const auto add = [&](const char *test, std::function<Sample(Cpus)> run) {
        cells().push_back({test, queue, bytes, capacity, std::move(run)});
    };
    add("round-trip", [](Cpus cpus) { return Bench::round_trip(cpus); });
    add("saturated", [](Cpus cpus) { return Bench::throughput(cpus, Load::none); });
    add("producer-bound", [](Cpus cpus) { return Bench::throughput(cpus, Load::producer); });
    add("consumer-bound", [](Cpus cpus) { return Bench::throughput(cpus, Load::consumer); });
    add("one-way", [](Cpus cpus) { return Bench::one_way(cpus); });
    add("pair", [](Cpus) { return Bench::pair(); });
}

template <template <class, std::size_t> class Adapter> bool add_queue(const char *name) {
    add_size<Adapter, 32, 1024>(name);
    add_size<Adapter, 32, 65536>(name);
    add_size<Adapter, 64, 1024>(name);
    add_size<Adapter, 64, 65536>(name);
    return true;
}

#define HWTUNE_PEER(name, Adapter) static const bool added_##Adapter = bench::add_queue<Adapter>(name)

} // namespace bench
