// Reads on a schedule, of a file that the test makes, and of things that can't be read.

#include "hwtune/drive.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <sys/ioctl.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace hwtune;

namespace {

const std::atomic<bool> never{false};

struct File {
    explicit File(std::size_t bytes) {
        std::array<char, 32> name{"/tmp/hwtune-drive-XXXXXX"};
        descriptor = mkstemp(name.data());
        REQUIRE(descriptor >= 0);
        REQUIRE(unlink(name.data()) == 0);
        REQUIRE(ftruncate(descriptor, static_cast<off_t>(bytes)) == 0);
    }
    File(const File &) = delete;
    File &operator=(const File &) = delete;
    ~File() { close(descriptor); }
    int descriptor;
};

std::vector<std::uint64_t> every(std::uint64_t step_ns, std::size_t count) {
    std::vector<std::uint64_t> due(count);
    for (std::size_t i = 0; i < count; ++i) {
        due[i] = i * step_ns;
    }
    return due;
}

int some_cpu() {
    for (int cpu = 0; cpu < 1024; ++cpu) {
        try {
            const Pinned pinned(cpu);
            return cpu;
        } catch (const std::system_error &) {
            continue;
        }
    }
    return -1;
}

DriveResult run(int file, std::uint64_t bytes, const std::vector<std::uint64_t> &due, bool io_uring = true) {
    DrivePlan plan;
    plan.file = file;
    plan.cpu = some_cpu();
    plan.bytes = bytes;
    plan.due = due;
    plan.io_uring = io_uring;
    return read_drive(plan, make_clock(), never);
}

} // namespace

TEST_SUITE("drive") {
    TEST_CASE("every read of the schedule is told, by io_uring where there is one, and by pread") {
        const File file(1U << 20U);
        const std::vector<std::uint64_t> due = every(100'000, 200);
        for (const bool io_uring : {true, false}) {
            const DriveResult result = run(file.descriptor, 1U << 20U, due, io_uring);
            CAPTURE(result.why);
            CHECK(result.due_ns == due);
            CHECK(result.latency_ns.size() == 200);
            CHECK(result.failed == 0);
            CHECK_FALSE(result.stopped);
            CHECK(result.affinity_restored);
            CHECK((io_uring || !result.io_uring));
            for (std::size_t i = 0; i < 200; ++i) {
                CHECK(result.latency_ns[i] > 0);
                CHECK(result.wait_ns[i] + result.submit_ns[i] <= result.latency_ns[i] + 1);
                if (i > 0 && result.wait_ns[i] > 0) { // it waited for the one before, which ended after it was due
                    CHECK(result.latency_ns[i - 1] + due[i - 1] >= due[i]);
                }
            }
        }
    }

    TEST_CASE("reads that are due together wait for each other") {
        const File file(1U << 20U);
        const DriveResult result = run(file.descriptor, 1U << 20U, std::vector<std::uint64_t>(50, 0));
        CHECK(result.latency_ns.size() == 50);
        CHECK(std::is_sorted(result.latency_ns.begin(), result.latency_ns.end()));
        CHECK(result.wait_ns[0] == 0);
        CHECK(result.wait_ns[49] > 0);
    }

    TEST_CASE("what can't be read is counted, with its error, and has no latency") {
        std::array<int, 2> ends{};
        REQUIRE(pipe(ends.data()) == 0);
        close(ends[1]);
        for (const bool io_uring : {true, false}) {
            const DriveResult result = run(ends[0], 4096, every(1000, 5), io_uring);
            CHECK(result.failed == 5);
            CHECK(result.latency_ns.empty());
            CHECK((result.error == ESPIPE || result.error == 0)); // io_uring reads a pipe at any offset: short
        }
        close(ends[0]);
        CHECK(run(-1, 4096, every(1000, 3)).error == EBADF);
    }

    TEST_CASE("a read beyond the end is short") {
        const File file(4096);
        const DriveResult result = run(file.descriptor, 1U << 30U, every(1000, 20));
        CHECK(result.failed + result.latency_ns.size() == 20);
        CHECK(result.failed >= 19);
    }

    TEST_CASE("it stops when told") {
        const File file(1U << 20U);
        DrivePlan plan;
        const std::vector<std::uint64_t> due = every(60'000'000'000, 3);
        plan.file = file.descriptor;
        plan.cpu = some_cpu();
        plan.bytes = 1U << 20U;
        plan.due = due;
        const std::atomic<bool> at_once{true};
        const DriveResult result = read_drive(plan, make_clock(), at_once);
        CHECK(result.stopped);
        CHECK(result.latency_ns.size() <= 1);
    }

    TEST_CASE("a read that never ends is given up when told, with how long it has been under way") {
        std::array<int, 2> ends{};
        REQUIRE(pipe(ends.data()) == 0); // with a writer: once it is empty no read of it ends
        const std::vector<char> block(4096);
        REQUIRE(write(ends[1], block.data(), block.size()) == 4096);
        DrivePlan plan;
        const std::vector<std::uint64_t> due(3, 0); // the second is made as soon as the first has ended
        plan.file = ends[0];
        plan.cpu = some_cpu();
        plan.bytes = 4096;
        plan.due = due;
        std::atomic<bool> stop{false};
        std::thread later([&] {
            int left = 1;
            for (int turn = 0; left != 0 && turn < 600 && !stop.load(); ++turn) { // until the first read has had its block
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                static_cast<void>(ioctl(ends[0], FIONREAD, &left));
            }
            stop.store(true);
        });
        bool io_uring = true;
        try {
            const ReadRing ring;
        } catch (const std::system_error &) {
            io_uring = false; // pread would wait for ever
            stop.store(true);
        }
        if (io_uring) {
            const DriveResult result = read_drive(plan, make_clock(), stop);
            CHECK(result.stopped);
            CHECK(result.latency_ns.size() <= 1);
            CHECK(result.unfinished_ns > 0);
            CHECK(result.unfinished_ns < 60'000'000'000U);
            CHECK(result.ended_ns >= result.unfinished_ns);
        }
        later.join();
        close(ends[0]);
        close(ends[1]);
    }

    TEST_CASE("gaps lie one after the other within the run") {
        const File file(1U << 20U);
        const std::vector<std::uint64_t> due = every(1'000'000, 100);
        const DriveResult result = run(file.descriptor, 1U << 20U, due);
        std::uint64_t end = 0;
        for (std::size_t i = 0; i < result.gap_starts_ns.size(); ++i) {
            CHECK(result.gap_starts_ns[i] + 2 >= end); // each is rounded down
            end = result.gap_starts_ns[i] + result.gap_lengths_ns[i];
        }
        CHECK(end <= result.ended_ns + 2);
        CHECK(result.ended_ns >= due.back());
        CHECK(result.gap_starts_ns.size() == result.gap_lengths_ns.size());
    }

    TEST_CASE("a plan that can't be is refused") {
        const std::vector<std::uint64_t> due{2, 1};
        DrivePlan plan;
        plan.cpu = some_cpu();
        plan.bytes = 4096;
        CHECK_THROWS_AS(static_cast<void>(read_drive(plan, make_clock(), never)), std::invalid_argument);
        plan.due = due;
        CHECK_THROWS_AS(static_cast<void>(read_drive(plan, make_clock(), never)), std::invalid_argument);
        plan.due = std::span(due).subspan(1);
        plan.block = 1000;
        CHECK_THROWS_AS(static_cast<void>(read_drive(plan, make_clock(), never)), std::invalid_argument);
        plan.block = 8192;
        CHECK_THROWS_AS(static_cast<void>(read_drive(plan, make_clock(), never)), std::invalid_argument);
    }
}
