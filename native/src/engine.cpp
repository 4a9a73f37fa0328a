// The inference engines for Python: made here, run by the pipeline, and scored batch by batch for tests.

#include "bind.hpp"

#include "hwtune/engine.hpp"
#include "hwtune/isa.hpp"
#include "hwtune/onnx.hpp"
#include "hwtune/perceptron.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using hwtune::Engine;
using hwtune::feature_width;
using hwtune::Isa;
using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Scores = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

std::vector<std::string> cpu_isas() {
    std::vector<std::string> names;
    for (const Isa isa : hwtune::all_isas) {
        if (hwtune::available(isa)) {
            names.emplace_back(name(isa));
        }
    }
    return names;
}

hwtune::Backing backing(bool huge_pages) {
    return huge_pages ? hwtune::Backing::huge_pages : hwtune::Backing::heap;
}

std::unique_ptr<Engine> make_null_engine(std::size_t max_batch) {
    return std::make_unique<hwtune::NullEngine>(max_batch);
}

std::unique_ptr<Engine> make_cpu_engine(std::size_t max_batch, const std::optional<std::string> &isa, bool huge_pages) {
    const Isa chosen = isa ? hwtune::isa_named(*isa) : hwtune::best_isa();
    return std::make_unique<hwtune::CpuEngine>(max_batch, chosen, backing(huge_pages));
}

std::unique_ptr<Engine> make_onnx_engine(const std::string &model, const std::string &library, std::size_t max_batch) {
    nb::gil_scoped_release release; // a large model takes seconds
    return std::make_unique<hwtune::OnnxEngine>(model, library, max_batch);
}

// One batch after another through slot 0.
void score(Engine &engine, const float *rows, std::size_t count, float *scores) {
    engine.attach();
    while (count > 0) {
        const std::size_t batch = std::min(count, engine.max_batch());
        std::copy_n(rows, batch * feature_width, engine.input(0));
        engine.submit(0, batch);
        Engine::Status status = Engine::Status::busy;
        while (status == Engine::Status::busy) {
            status = engine.poll(0);
        }
        if (status == Engine::Status::failed) {
            throw std::runtime_error(engine.error());
        }
        scores = std::copy_n(engine.output(0), batch, scores);
        rows += batch * feature_width;
        count -= batch;
    }
}

Scores infer(Engine &engine, const Rows &rows) {
    if (rows.shape(1) != feature_width) {
        throw std::invalid_argument("needs rows of 64 features, not " + std::to_string(rows.shape(1)));
    }
    const std::size_t count = rows.shape(0);
    auto scores = std::make_unique<float[]>(count);
    {
        nb::gil_scoped_release release;
        score(engine, rows.data(), count, scores.get());
    }
    nb::capsule owner(scores.get(), [](void *pointer) noexcept { delete[] static_cast<float *>(pointer); });
    return Scores(scores.release(), {count}, owner);
}

} // namespace

void bind_engine(nb::module_ &module) {
    nb::class_<Engine>(module, "Engine")
        .def_prop_ro("name", &Engine::name)
        .def_prop_ro("max_batch", &Engine::max_batch)
        .def_prop_ro("slots", &Engine::slots)
        .def("infer", &infer, "rows"_a.noconvert());

    module.def("cpu_isas", &cpu_isas);
    module.def("make_null_engine", &make_null_engine, "max_batch"_a);
    module.def("make_cpu_engine", &make_cpu_engine, "max_batch"_a, "isa"_a = nb::none(), nb::kw_only(),
               "huge_pages"_a = false);
    module.def("make_onnx_engine", &make_onnx_engine, "model"_a, "library"_a, "max_batch"_a);
}
