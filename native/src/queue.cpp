// Both ends of a shared queue for Python. A message is a number of 63 bits and a payload; the payload is handed out as
// the memory of the slot itself.

#include "bind.hpp"

#include "hwtune/shared_queue.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <utility>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using namespace hwtune;

constexpr std::size_t first_word = sizeof(std::uint64_t);

// An end that can be closed; the views that it has handed out keep it, and it keeps the mapping.
template <class Shared> struct End {
    End(Shared &&shared, std::size_t message_bytes) : end(std::move(shared)), payload_bytes(message_bytes - first_word) {}

    [[nodiscard]] Shared &open() {
        if (end.closed()) {
            throw std::invalid_argument("this end of the queue is closed");
        }
        return end;
    }
    // Ends a claim or a look at the front, which must have been.
    [[nodiscard]] Shared &finish(const char *otherwise) {
        if (!std::exchange(held, false)) {
            throw std::invalid_argument(otherwise);
        }
        return open();
    }

    Shared end;
    std::size_t payload_bytes;
    bool held = false; // a slot was handed out
};
using Producer = End<SharedProducer<AnyMessage>>;
using Consumer = End<SharedConsumer<AnyMessage>>;

template <class Byte> using Payload = nb::ndarray<nb::numpy, Byte, nb::ndim<1>, nb::c_contig>;

std::optional<Payload<std::uint8_t>> claim(nb::handle_t<Producer> self) {
    auto &producer = nb::cast<Producer &>(self);
    AnyMessage *slot = producer.open()->claim();
    producer.held = slot != nullptr;
    if (!producer.held) {
        return std::nullopt;
    }
    return Payload<std::uint8_t>(reinterpret_cast<std::uint8_t *>(slot) + first_word, {producer.payload_bytes}, self);
}

void commit(Producer &producer, std::uint64_t number) {
    if (number >= phase_bit) {
        throw std::invalid_argument("a message's number must be below 2**63");
    }
    producer.finish("commit() without a slot that was claimed")->commit(number);
}

std::optional<Payload<const std::uint8_t>> front(nb::handle_t<Consumer> self) {
    auto &consumer = nb::cast<Consumer &>(self);
    const AnyMessage *slot = consumer.open()->front();
    consumer.held = slot != nullptr;
    if (!consumer.held) {
        return std::nullopt;
    }
    return Payload<const std::uint8_t>(reinterpret_cast<const std::uint8_t *>(slot) + first_word, {consumer.payload_bytes},
                                       self);
}

std::uint64_t number(Consumer &consumer) {
    const AnyMessage *slot = consumer.held ? consumer.open()->front() : nullptr;
    if (slot == nullptr) {
        throw std::invalid_argument("number without a message at the front");
    }
    return sequence_of(slot->sequence);
}

void release(Consumer &consumer) { consumer.finish("release() without a message at the front")->release(); }

template <class Bound> nb::class_<Bound> bind_end(nb::module_ &module, const char *class_name) {
    nb::class_<Bound> bound(module, class_name);
    bound.def_ro("payload_bytes", &Bound::payload_bytes)
        .def_prop_ro("capacity", [](Bound &end) { return end.open()->capacity(); })
        .def_prop_ro("closed", [](const Bound &end) { return end.end.closed(); })
        .def("peer", [](Bound &end) { return name(end.open().peer()); })
        .def("close", [](Bound &end) { end.end.close(); })
        .def("__enter__", [](nb::handle_t<Bound> self) { return nb::borrow(self); })
        .def("__exit__", [](Bound &end, const nb::args &) { end.end.close(); });
    return bound;
}

} // namespace

void bind_queue(nb::module_ &module) {
    bind_end<Producer>(module, "QueueProducer")
        .def("claim", &claim)
        .def("commit", &commit, "number"_a)
        .def("backlog", [](Producer &producer) { return producer.open()->backlog(); });
    bind_end<Consumer>(module, "QueueConsumer")
        .def("front", &front)
        .def_prop_ro("number", &number)
        .def("release", &release);

    const auto path_of = [](const std::filesystem::path &path) { return path.string(); };
    nb::class_<SharedQueue>(module, "SharedQueue")
        .def_static(
            "create",
            [path_of](const std::filesystem::path &path, std::size_t message_bytes, std::size_t capacity) {
                return SharedQueue::create(path_of(path), message_bytes, capacity);
            },
            "path"_a, nb::kw_only(), "message_bytes"_a, "capacity"_a)
        .def_static("anonymous", &SharedQueue::anonymous, nb::kw_only(), "message_bytes"_a, "capacity"_a)
        .def_static("open", [path_of](const std::filesystem::path &path) { return SharedQueue::open(path_of(path)); }, "path"_a)
        .def_static("from_descriptor", &SharedQueue::from_descriptor, "descriptor"_a)
        .def("fileno", &SharedQueue::descriptor)
        .def_prop_ro("message_bytes", &SharedQueue::message_bytes)
        .def_prop_ro("capacity", &SharedQueue::capacity)
        .def("producer", [](const SharedQueue &queue) { return Producer(queue.producer<AnyMessage>(), queue.message_bytes()); })
        .def("consumer", [](const SharedQueue &queue) { return Consumer(queue.consumer<AnyMessage>(), queue.message_bytes()); });
}
