#include "hwtune/gpu_engine.hpp"

#include "hot_path.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace hwtune;

namespace {

// Files of a test's own for fake_cuda.c, which reads its scenario at cuInit.
class Scene {
  public:
    explicit Scene(const std::string &text) : base_("/tmp/hwtune-gpu-test-" + std::to_string(getpid())) {
        std::ofstream(base_ + ".scene") << text;
        std::ofstream(base_ + ".log");
        setenv("FAKE_CUDA_SCENARIO", (base_ + ".scene").c_str(), 1);
        setenv("FAKE_CUDA_LOG", (base_ + ".log").c_str(), 1);
    }
    Scene(const Scene &) = delete;
    Scene &operator=(const Scene &) = delete;
    ~Scene() {
        unlink((base_ + ".scene").c_str());
        unlink((base_ + ".log").c_str());
    }
    [[nodiscard]] std::string complaints() const {
        std::ostringstream all;
        all << std::ifstream(base_ + ".log").rdbuf();
        return all.str();
    }

  private:
    std::string base_;
};

// Rows go in and what the device has goes out: no kernel.
class NoWork final : public GpuWork {
  public:
    explicit NoWork(int &calls) : calls_(calls) {}
    void enqueue(cuda::Handle, std::size_t, std::size_t, cuda::DevicePointer, cuda::DevicePointer) override { ++calls_; }
    void abandon() noexcept override {}

  private:
    int &calls_;
};

GpuPlan plan(std::size_t streams) {
    GpuPlan made;
    made.name = "test";
    made.sizes = {1, 2, 8};
    made.streams = streams;
    made.deadline = std::chrono::seconds(20);
    return made;
}

} // namespace

TEST_SUITE_BEGIN("gpu");

TEST_CASE("batches come and go on streams of their own, without an allocation") {
    const Scene scene("in_us = 50\nout_us = 20\n");
    int calls = 0;
    {
        auto device = std::make_shared<cuda::Device>(cuda::Driver(FAKE_CUDA), 0);
        GpuEngine engine(device, std::make_unique<NoWork>(calls), plan(3), raw_clock("a test"));
        CHECK(calls == 2 * 3 * 3); // as it is and in a capture
        CHECK(engine.max_batch() == 8);
        CHECK(engine.slots() == 3);
        CHECK(engine.launch().count() == 0);
        CHECK(engine.poll(0) == Engine::Status::done);
        const std::size_t before = hwtune_test::allocations();
        bool never_busy = true;
        for (std::size_t round = 0; round < 20; ++round) {
            for (std::size_t slot = 0; slot < 3; ++slot) {
                engine.submit(slot, 1 + (round + slot) % 8);
            }
            for (std::size_t slot = 0; slot < 3; ++slot) {
                while (engine.poll(slot) == Engine::Status::busy) {
                    never_busy = false;
                }
            }
        }
        CHECK(hwtune_test::allocations() == before);
        CHECK_FALSE(never_busy);
        CHECK(engine.launch().count() == 60);
        CHECK(engine.wait().count() == 60);
        CHECK(engine.wait().max() >= 60'000);
        engine.measured();
        CHECK(engine.wait().count() == 0);
        CHECK(engine.error().empty());
        engine.submit(1, 2); // still under way when it goes
    }
    CHECK(scene.complaints().empty());
}

TEST_CASE("another thread may submit once it is attached") {
    const Scene scene("");
    int calls = 0;
    {
        auto device = std::make_shared<cuda::Device>(cuda::Driver(FAKE_CUDA), 0);
        GpuEngine engine(device, std::make_unique<NoWork>(calls), plan(1), raw_clock("a test"));
        std::thread([&] {
            engine.attach();
            engine.submit(0, 5);
            while (engine.poll(0) == Engine::Status::busy) {
            }
        }).join();
        CHECK(engine.poll(0) == Engine::Status::done);
        CHECK(engine.wait().count() == 1);
        engine.submit(0, 0); // no rows have no scores
        CHECK(engine.poll(0) == Engine::Status::done);
        CHECK(engine.launch().count() == 1);
    }
    CHECK(scene.complaints().empty());
}

TEST_CASE("what is no driver is refused") {
    CHECK_THROWS_WITH_AS(cuda::Driver("libm.so.6"),
                         "the NVIDIA driver is too old, or libm.so.6 is none: it has no cuInit, which CUDA 11.4 and later have",
                         std::runtime_error);
}

TEST_SUITE_END();
