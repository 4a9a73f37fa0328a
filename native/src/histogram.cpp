#include "bind.hpp"

#include "hwtune/histogram.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using hwtune::Histogram;
using Values = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::device::cpu>;
using Column = nb::ndarray<nb::numpy, const std::uint64_t, nb::ndim<1>, nb::c_contig>;

void record_many(Histogram &histogram, const Values &values) {
    const std::uint64_t *data = values.data();
    const std::int64_t stride = values.stride(0);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.shape(0)); ++i) {
        histogram.record(data[i * stride]);
    }
}

// A read-only view that keeps its Histogram alive.
Column counts(nb::handle_t<Histogram> self) {
    const std::span<const std::uint64_t> values = nb::cast<Histogram &>(self).counts();
    return Column(values.data(), {values.size()}, self);
}

template <std::uint64_t (*bound)(std::size_t)> Column bounds() {
    auto *values = new std::vector<std::uint64_t>;
    nb::capsule owner(values, [](void *made) noexcept { delete static_cast<std::vector<std::uint64_t> *>(made); });
    values->reserve(Histogram::buckets());
    for (std::size_t i = 0; i < Histogram::buckets(); ++i) {
        values->push_back(bound(i));
    }
    return Column(values->data(), {values->size()}, owner);
}

nb::bytes encode(const Histogram &histogram) {
    const std::vector<std::uint8_t> bytes = histogram.encode();
    return nb::bytes(bytes.data(), bytes.size());
}

Histogram decode(const nb::bytes &bytes) {
    return Histogram::decode({static_cast<const std::uint8_t *>(bytes.data()), bytes.size()});
}

} // namespace

void bind_histogram(nb::module_ &module) {
    // std::domain_error and std::invalid_argument become ValueError, std::overflow_error OverflowError.
    nb::class_<Histogram>(module, "Histogram")
        .def(nb::init<>())
        .def("record", &Histogram::record, "ns"_a)
        .def("record_many", &record_many, nb::arg("ns").noconvert())
        .def("merge", &Histogram::merge, "other"_a)
        .def("clear", &Histogram::clear)
        .def_prop_ro("count", &Histogram::count)
        .def_prop_ro("overflow", &Histogram::overflow)
        .def_prop_ro("min", &Histogram::min)
        .def_prop_ro("max", &Histogram::max)
        .def_prop_ro("mean", &Histogram::mean)
        .def("value_at", &Histogram::value_at, "quantile"_a)
        .def("counts", &counts)
        .def_static("bucket_index", &Histogram::bucket_index, "ns"_a)
        .def_static("lower_bounds", &bounds<&Histogram::lower_bound>)
        .def_static("upper_bounds", &bounds<&Histogram::upper_bound>)
        .def("encode", &encode)
        .def_static("decode", &decode, "data"_a);
}
