#include "hwtune/onnx.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

using namespace hwtune;

TEST_SUITE_BEGIN("onnx");

TEST_CASE("what is no onnxruntime is refused before anything is asked of it") {
    CHECK_THROWS_AS(onnx::Library("/nonexistent/libonnxruntime.so"), std::runtime_error);
    CHECK_THROWS_WITH_AS(onnx::Library("libm.so.6"), "libm.so.6 is not onnxruntime: it has no OrtGetApiBase",
                         std::runtime_error);
}

TEST_CASE("shapes are told as a person would write them") {
    CHECK(onnx::Shape{1, {-1, 64}}.text() == "float32 [N, 64]");
    CHECK(onnx::Shape{11, {}}.text() == "float64 []");
    CHECK(onnx::Shape{99, {3}}.text() == "another type [3]");
    CHECK(onnx::Shape{-1, {3}}.text() == "another type [3]");
}

// The tests in Python go through all of it; this is for running it under a sanitizer.
TEST_CASE("a model runs" * doctest::skip(std::getenv("HWTUNE_TEST_ONNXRUNTIME") == nullptr)) {
    const std::string model = std::getenv("HWTUNE_TEST_ONNX_MODEL");
    const std::string library = std::getenv("HWTUNE_TEST_ONNXRUNTIME");
    for (const std::size_t batch : {1U, 32U}) {
        OnnxEngine engine(model, library, batch);
        for (std::size_t rows = 0; rows <= batch; ++rows) {
            engine.submit(0, rows);
            REQUIRE(engine.poll(0) == Engine::Status::done);
        }
        CHECK(engine.error().empty());
        CHECK(engine.output(0)[batch - 1] > 0.0F);
    }
    CHECK_THROWS_AS(OnnxEngine(library, library, 1), std::runtime_error);
}

TEST_SUITE_END();
