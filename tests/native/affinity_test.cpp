#include "hwtune/affinity.hpp"

#include <doctest/doctest.h>

#include <sched.h>
#include <stdexcept>
#include <string>
#include <system_error>

using hwtune::CpuSet;
using hwtune::Pinned;

TEST_SUITE_BEGIN("affinity");

TEST_CASE("sets are equal by their CPUs, not by their sizes") {
    CHECK(CpuSet::only(3) == CpuSet::only(3));
    CHECK_FALSE(CpuSet::only(3) == CpuSet::only(67)); // the same bit of another word
    CHECK_FALSE(CpuSet::only(67) == CpuSet::only(3));
    CHECK(CpuSet(8) == CpuSet(4096));
}

TEST_CASE("a pinned thread is on its CPU alone, and gets its affinity back") {
    const CpuSet before = CpuSet::of_this_thread();
    const int cpu = sched_getcpu();
    {
        Pinned pinned(cpu);
        CHECK(sched_getcpu() == cpu);
        CHECK(CpuSet::of_this_thread() == CpuSet::only(cpu));
    }
    CHECK(CpuSet::of_this_thread() == before);
}

TEST_CASE("restore() says that it did, once and again") {
    const CpuSet before = CpuSet::of_this_thread();
    Pinned pinned(sched_getcpu());
    CHECK(pinned.restore());
    CHECK(CpuSet::of_this_thread() == before);
    CHECK(pinned.restore());
}

TEST_CASE("a CPU that isn't there is refused and named, and nothing is left pinned") {
    const CpuSet before = CpuSet::of_this_thread();
    const int absent = static_cast<int>(CpuSet::max_cpus) - 1;
    try {
        Pinned pinned(absent);
        FAIL("pinned to a CPU that cannot be there");
    } catch (const std::system_error &error) {
        CHECK(error.code() == std::errc::invalid_argument);
        CHECK(std::string(error.what()).find(std::to_string(absent)) != std::string::npos);
    }
    CHECK(CpuSet::of_this_thread() == before);
}

TEST_CASE("numbers that can't be a CPU are the caller's error") {
    CHECK_THROWS_AS(Pinned(-1), std::invalid_argument);
    CHECK_THROWS_AS(Pinned(static_cast<int>(CpuSet::max_cpus)), std::invalid_argument);
}

TEST_SUITE_END();
