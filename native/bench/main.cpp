// queue_bench --rounds N --cpus A,B [--test NAME] [--queue NAME]: one line of JSON a sample, all cells in each round, in
// another order each time. bench/queues.py makes the table of them.

#include "extras.hpp"
#include "pipeline_cells.hpp"
#include "queue_bench.hpp"

#include <cstring>
#include <random>
#include <string_view>
#include <time.h>
#include <tuple>

namespace {

struct Options {
    int rounds = 9;
    bench::Cpus cpus;
    std::string_view test;
    std::string_view queue;
};

Options parse(int count, char **arguments) {
    Options options;
    for (int i = 1; i + 1 < count; i += 2) {
        const std::string_view name = arguments[i];
        const char *value = arguments[i + 1];
        if (name == "--rounds") {
            options.rounds = std::atoi(value);
        } else if (name == "--cpus" && std::sscanf(value, "%d,%d", &options.cpus.first, &options.cpus.second) == 2) {
        } else if (name == "--test") {
            options.test = value;
        } else if (name == "--queue") {
            options.queue = value;
        } else {
            bench::die("what is '" + std::string(name) + " " + value + "'?");
        }
    }
    return options;
}

void print(int round, const bench::Cell &cell, const bench::Sample &sample) {
    std::printf("{\"round\": %d, \"test\": \"%s\", \"queue\": \"%s\", \"bytes\": %zu, \"capacity\": %zu, \"ns\": %.4f, "
                "\"p99_ns\": %.2f, \"probes_ns\": [%.2f, %.2f], \"preempted\": %lld, \"complete\": %s, \"count\": %llu}\n",
                round, cell.test.c_str(), cell.queue.c_str(), cell.bytes, cell.capacity, sample.value, sample.p99,
                sample.before_ns, sample.after_ns, static_cast<long long>(sample.preempted),
                sample.complete ? "true" : "false", static_cast<unsigned long long>(sample.count));
    std::fflush(stdout);
}

} // namespace

int main(int count, char **arguments) {
    const Options options = parse(count, arguments);
    const hwtune::Pinned pinned(options.cpus.first);
    static_cast<void>(bench::ns_per_tick());
    bench::add_extras();
    bench::pipeline::add_pipeline();
    std::vector<bench::Cell> chosen;
    for (const bench::Cell &cell : bench::cells()) {
        if ((options.test.empty() || cell.test == options.test) && (options.queue.empty() || cell.queue == options.queue)) {
            chosen.push_back(cell);
        }
    }
    // Queues of one test and size side by side, so that they meet the same machine; the order of both by chance.
    std::mt19937 random(1);
    for (int round = 0; round < options.rounds; ++round) {
        std::shuffle(chosen.begin(), chosen.end(), random);
        std::stable_sort(chosen.begin(), chosen.end(), [](const bench::Cell &a, const bench::Cell &b) {
            return std::tie(a.test, a.bytes, a.capacity) < std::tie(b.test, b.bytes, b.capacity);
        });
        for (const bench::Cell &cell : chosen) {
            print(round, cell, cell.run(options.cpus));
            const timespec rest{0, 5'000'000}; // for whoever waited behind SCHED_FIFO
            nanosleep(&rest, nullptr);
        }
    }
    std::printf("{\"fifo\": %s}\n", bench::Fifo::allowed() ? "true" : "false");
    return 0;
}
