// hwtune._native.FeatureWindow: the feature stage over arrays of ticks.

#include "bind.hpp"

#include "hwtune/features.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using hwtune::feature_width;
using hwtune::FeatureWindow;
template <class Number, int dimensions>
using Input = nb::ndarray<const Number, nb::ndim<dimensions>, nb::c_contig, nb::device::cpu>;

template <class Number> using Rows = nb::ndarray<nb::numpy, Number, nb::ndim<2>>;

template <class Number>
Rows<Number> rows(FeatureWindow &window, const Input<std::uint64_t, 1> &time_ns, const Input<double, 2> &prices,
                  const Input<std::uint32_t, 2> &sizes) {
    const std::size_t count = time_ns.shape(0);
    if (prices.shape(0) != count || prices.shape(1) != 3 || sizes.shape(0) != count || sizes.shape(1) != 4) {
        throw std::invalid_argument("needs n times, (n, 3) prices (bid, ask, trade) and (n, 4) sizes (bid, ask, "
                                    "volume, aggressor)");
    }
    auto values = std::make_unique<Number[]>(count * feature_width);
    {
        nb::gil_scoped_release release;
        for (std::size_t at = 0; at < count; ++at) {
            const double *price = prices.data() + 3 * at;
            const std::uint32_t *size = sizes.data() + 4 * at;
            const hwtune::Tick tick{at, 0, 0, price[0], price[1], price[2], size[0], size[1], size[2], size[3]};
            window.update(tick, time_ns.data()[at], values.get() + feature_width * at);
        }
    }
    nb::capsule owner(values.get(), [](void *pointer) noexcept { delete[] static_cast<Number *>(pointer); });
    return Rows<Number>(values.release(), {count, feature_width}, owner);
}

} // namespace

void bind_features(nb::module_ &module) {
    nb::class_<FeatureWindow>(module, "FeatureWindow")
        .def("__init__",
             [](FeatureWindow *self, const std::optional<std::string> &isa) {
                 new (self) FeatureWindow(isa ? hwtune::isa_named(*isa) : hwtune::best_isa());
             },
             "isa"_a = nb::none())
        .def("rows", &rows<float>, "time_ns"_a.noconvert(), "prices"_a.noconvert(), "sizes"_a.noconvert())
        .def("values", &rows<double>, "time_ns"_a.noconvert(), "prices"_a.noconvert(), "sizes"_a.noconvert());
}
