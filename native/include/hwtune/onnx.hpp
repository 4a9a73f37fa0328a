// A user's own model through onnxruntime, whose Python wheel has the library but no headers: it is loaded by path, and
// the few functions needed are taken from OrtApi, a table of pointers to which each version only appends
// (onnxruntime/core/session/onnxruntime_c_api.cc, whose static_asserts fix the ends of versions 1 to 24; the
// signatures are those of include/onnxruntime/core/session/onnxruntime_c_api.h).
//
// Everything is bound beforehand: for each number of rows an OrtIoBinding of tensors over the engine's own buffers.
// What onnxruntime does inside a run is its own: it takes locks, and allocates from its arena.

#pragma once

#include "hwtune/engine.hpp"
#include "hwtune/pages.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace hwtune {

namespace onnx {

inline constexpr std::uint32_t api_version = 20; // the first whose wheel has the library: onnxruntime 1.20
inline constexpr std::size_t max_batch = 1024;

// Positions in OrtApi.
enum class Call : std::size_t {
    get_error_message = 2,
    create_env = 3,
    disable_telemetry = 6,
    create_session = 7,
    create_session_options = 10,
    set_execution_mode = 13,
    set_optimization_level = 23,
    set_intra_op_threads = 24,
    set_inter_op_threads = 25,
    input_count = 30,
    output_count = 31,
    input_type = 33,
    output_type = 34,
    input_name = 36,
    output_name = 37,
    create_tensor_with_data = 49,
    type_to_tensor_info = 55,
    element_type = 60,
    dimensions_count = 61,
    dimensions = 62,
    create_cpu_memory_info = 69,
    allocator_free = 76,
    default_allocator = 78,
    release_env = 92,
    release_status = 93,
    release_memory_info = 94,
    release_session = 95,
    release_value = 96,
    release_type_info = 98,
    release_session_options = 100,
    add_session_config_entry = 130,
    run_with_binding = 133,
    create_io_binding = 134,
    release_io_binding = 135,
    bind_input = 136,
    bind_output = 137,
};

// The values of onnxruntime's enums that are used here.
inline constexpr int log_fatal_only = 4; // ORT_LOGGING_LEVEL_FATAL: what fails is told by a status
inline constexpr int sequential = 0;     // ORT_SEQUENTIAL
inline constexpr int all_optimizations = 99;
inline constexpr int element_float = 1; // ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT
inline constexpr int arena_allocator = 1;
inline constexpr int memory_default = 0;

struct Status; // OrtStatus; nullptr is success

// The library and its table. It stays loaded: it has threads and static objects of its own.
class Library {
  public:
    // Throws std::runtime_error, one sentence, where the file is no onnxruntime or too old.
    explicit Library(const std::string &path) {
        void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) {
            throw std::runtime_error("onnxruntime cannot be loaded: " + std::string(dlerror()));
        }
        struct Base { // OrtApiBase
            const void *const *(*get_api)(std::uint32_t);
            const char *(*version)();
        };
        void *entry = dlsym(handle, "OrtGetApiBase");
        if (entry == nullptr) {
            throw std::runtime_error(path + " is not onnxruntime: it has no OrtGetApiBase");
        }
        const Base *base = reinterpret_cast<const Base *(*)()>(entry)();
        version_ = base->version();
        char *minor = nullptr;
        const long major = std::strtol(version_.c_str(), &minor, 10);
        const bool recent = major == 1 && *minor == '.' && std::strtol(minor + 1, nullptr, 10) >= long{api_version};
        // Asked only then, as an older library prints a complaint of its own.
        table_ = recent ? base->get_api(api_version) : nullptr;
        if (table_ == nullptr) {
            throw std::runtime_error("onnxruntime " + version_ + " lacks the interface that hwtune uses; it needs 1." +
                                     std::to_string(api_version) + " or a later 1.x");
        }
    }

    template <Call which, class... Arguments> Status *call(Arguments... arguments) const noexcept {
        return function<Status *(Arguments...)>(which)(arguments...);
    }
    // Nothing happens to nullptr.
    template <Call which> void release(void *object) const noexcept { function<void(void *)>(which)(object); }

    // Throws std::runtime_error with what onnxruntime says, as one line, after `what`.
    void check(Status *status, const std::string &what) const {
        if (status != nullptr) {
            const std::string why = text(status);
            release<Call::release_status>(status);
            throw std::runtime_error(what + ": " + why);
        }
    }
    [[nodiscard]] std::string text(const Status *status) const {
        std::string line = function<const char *(const Status *)>(Call::get_error_message)(status);
        std::replace_if(line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
        return line;
    }
    [[nodiscard]] const std::string &version() const noexcept { return version_; }

  private:
    template <class Signature> [[nodiscard]] Signature *function(Call which) const noexcept {
        return reinterpret_cast<Signature *>(const_cast<void *>(table_[static_cast<std::size_t>(which)]));
    }

    const void *const *table_ = nullptr;
    std::string version_;
};

// An object of onnxruntime's and what releases it.
template <Call release> class Handle {
  public:
    Handle(const Library &library, void *object) noexcept : library_(&library), object_(object) {}
    Handle(Handle &&other) noexcept : library_(other.library_), object_(std::exchange(other.object_, nullptr)) {}
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;
    Handle &operator=(Handle &&) = delete;
    ~Handle() {
        if (object_ != nullptr) {
            library_->template release<release>(object_);
        }
    }
    [[nodiscard]] void *get() const noexcept { return object_; }

  private:
    const Library *library_;
    void *object_;
};

// A tensor's element type and dimensions; -1 is a dimension that the model leaves open.
struct Shape {
    int element = 0;
    std::vector<std::int64_t> sizes;

    [[nodiscard]] std::string text() const {
        constexpr std::array names{"no type", "float32", "uint8", "int8",    "uint16",  "int16",  "int32",
                                   "int64",   "string",  "bool",  "float16", "float64", "uint32", "uint64"};
        const auto which = static_cast<std::size_t>(element);
        std::string all = std::string(which < names.size() ? names[which] : "another type") + " [";
        for (std::size_t at = 0; at < sizes.size(); ++at) {
            all += (at > 0 ? ", " : "") + (sizes[at] < 0 ? "N" : std::to_string(sizes[at]));
        }
        return all + "]";
    }
};

} // namespace onnx

// On the thread that asks, with no thread of onnxruntime's own: done when submit() returns.
class OnnxEngine final : public Engine {
  public:
    // `library`: the path of libonnxruntime.so. A model with a fixed batch runs that many rows each time, and takes no
    // more than those. Throws std::runtime_error, one sentence, for a library or a model that can't be used,
    // std::invalid_argument for a batch that can't be.
    OnnxEngine(const std::string &model, const std::string &library, std::size_t batch)
        : model_(model), library_(library), env_(environment()), session_(session()), input_(one_input()),
          output_(one_output()), fixed_(fixed_batch()), max_batch_(checked(batch)),
          memory_((rows_held() * feature_width + rows_held()) * sizeof(float)) {
        bind();
        warm_up();
    }

    [[nodiscard]] std::string name() const override { return "onnx (onnxruntime " + library_.version() + ")"; }
    [[nodiscard]] std::size_t max_batch() const noexcept override { return max_batch_; }
    [[nodiscard]] float *input(std::size_t) noexcept override { return rows(); }
    [[nodiscard]] const float *output(std::size_t) const noexcept override { return scores(); }

    void submit(std::size_t, std::size_t count) noexcept override {
        if (count == 0) {
            return;
        }
        const onnx::Status *none = nullptr;
        const std::size_t which = fixed_ > 0 ? 0 : std::min(count, max_batch_) - 1;
        onnx::Status *status = library_.call<onnx::Call::run_with_binding, void *, const void *, const void *>(
            session_.get(), none, bindings_[which].get());
        failed_ = status != nullptr;
        if (failed_) {
            library_.release<onnx::Call::release_status>(std::exchange(failure_, status)); // the message can wait
        }
    }
    [[nodiscard]] Status poll(std::size_t) noexcept override { return failed_ ? Status::failed : Status::done; }
    [[nodiscard]] std::string error() const override {
        return failure_ == nullptr ? std::string() : cannot("failed in onnxruntime: " + library_.text(failure_));
    }
    ~OnnxEngine() override { library_.release<onnx::Call::release_status>(failure_); }

  private:
    using Call = onnx::Call;
    using Binding = onnx::Handle<Call::release_io_binding>;
    using Value = onnx::Handle<Call::release_value>;
    struct Port {
        std::string name;
        onnx::Shape shape;
    };

    [[nodiscard]] std::string cannot(const std::string &why) const { return "the model " + model_ + " " + why; }

    [[nodiscard]] onnx::Handle<Call::release_env> environment() const {
        void *made = nullptr;
        const std::string what = "onnxruntime does not start";
        library_.check(library_.call<Call::create_env>(onnx::log_fatal_only, "hwtune", &made), what);
        onnx::Handle<Call::release_env> env(library_, made);
        library_.check(library_.call<Call::disable_telemetry>(static_cast<const void *>(made)), what);
        return env;
    }

    [[nodiscard]] onnx::Handle<Call::release_session> session() const {
        const std::string what = "onnxruntime cannot be set up";
        void *made = nullptr;
        library_.check(library_.call<Call::create_session_options>(&made), what);
        const onnx::Handle<Call::release_session_options> options(library_, made);
        library_.check(library_.call<Call::set_execution_mode>(made, onnx::sequential), what);
        library_.check(library_.call<Call::set_optimization_level>(made, onnx::all_optimizations), what);
        library_.check(library_.call<Call::set_intra_op_threads>(made, 1), what);
        library_.check(library_.call<Call::set_inter_op_threads>(made, 1), what);
        for (const char *spinning : {"session.intra_op.allow_spinning", "session.inter_op.allow_spinning"}) {
            library_.check(library_.call<Call::add_session_config_entry>(made, spinning, "0"), what);
        }
        void *session = nullptr;
        library_.check(library_.call<Call::create_session>(static_cast<const void *>(env_.get()), model_.c_str(),
                                                           static_cast<const void *>(made), &session),
                       cannot("cannot be loaded"));
        return {library_, session};
    }

    // Of the session's inputs or outputs: the name and shape of the only one.
    template <Call count_call, Call type_call, Call name_call> [[nodiscard]] Port only(const std::string &kind) const {
        const void *session = session_.get();
        const std::string what = cannot("does not tell its " + kind);
        std::size_t count = 0;
        library_.check(library_.call<count_call>(session, &count), what);
        if (count != 1) {
            throw std::runtime_error(cannot("has " + std::to_string(count) + " " + kind + "s; it needs one, " + needs));
        }
        return {name<name_call>(what), shape<type_call>(what, kind)};
    }

    template <Call call> [[nodiscard]] std::string name(const std::string &what) const {
        void *allocator = nullptr;
        library_.check(library_.call<Call::default_allocator>(&allocator), what);
        char *text = nullptr;
        const void *session = session_.get();
        library_.check(library_.call<call>(session, std::size_t{0}, allocator, &text), what);
        std::string copy = text;
        library_.check(library_.call<Call::allocator_free>(allocator, static_cast<void *>(text)), what);
        return copy;
    }

    template <Call call> [[nodiscard]] onnx::Shape shape(const std::string &what, const std::string &kind) const {
        const void *session = session_.get();
        void *made = nullptr;
        library_.check(library_.call<call>(session, std::size_t{0}, &made), what);
        const onnx::Handle<Call::release_type_info> type(library_, made);
        const void *tensor = nullptr; // belongs to `type`
        library_.check(library_.call<Call::type_to_tensor_info>(static_cast<const void *>(made), &tensor), what);
        if (tensor == nullptr) {
            throw std::runtime_error(cannot("has an " + kind + " that is no tensor; it needs " + needs));
        }
        onnx::Shape shape;
        std::size_t rank = 0;
        library_.check(library_.call<Call::element_type>(tensor, &shape.element), what);
        library_.check(library_.call<Call::dimensions_count>(tensor, &rank), what);
        shape.sizes.resize(rank);
        library_.check(library_.call<Call::dimensions>(tensor, shape.sizes.data(), rank), what);
        return shape;
    }

    [[nodiscard]] Port one_input() const {
        Port port = only<Call::input_count, Call::input_type, Call::input_name>("input");
        const std::vector<std::int64_t> &sizes = port.shape.sizes;
        if (port.shape.element != onnx::element_float || sizes.size() != 2 || sizes[0] == 0 ||
            sizes[1] != static_cast<std::int64_t>(feature_width)) {
            throw std::runtime_error(cannot("takes " + port.shape.text() + "; it needs " + needs));
        }
        return port;
    }
    [[nodiscard]] Port one_output() const {
        Port port = only<Call::output_count, Call::output_type, Call::output_name>("output");
        const std::vector<std::int64_t> &sizes = port.shape.sizes;
        const bool column = sizes.size() == 2 && sizes[1] == 1;
        if (port.shape.element != onnx::element_float || (sizes.size() != 1 && !column)) {
            throw std::runtime_error(cannot("gives " + port.shape.text() + "; it needs " + needs));
        }
        return port;
    }

    // 0 where the model takes any number of rows.
    [[nodiscard]] std::size_t fixed_batch() const {
        const std::int64_t in = input_.shape.sizes[0];
        const std::int64_t out = output_.shape.sizes[0];
        if (out >= 0 && out != in) {
            throw std::runtime_error(cannot("takes " + input_.shape.text() + " and gives " + output_.shape.text() +
                                            "; it needs " + needs));
        }
        if (in > static_cast<std::int64_t>(onnx::max_batch)) {
            throw std::runtime_error(cannot("has a batch of " + std::to_string(in) + "; the most is 1,024"));
        }
        return in < 0 ? 0 : static_cast<std::size_t>(in);
    }
    [[nodiscard]] std::size_t checked(std::size_t batch) const {
        if (batch == 0 || batch > onnx::max_batch) {
            throw std::invalid_argument("onnxruntime is given batches of 1 to 1,024 rows");
        }
        return fixed_ > 0 ? std::min(batch, fixed_) : batch;
    }

    void bind() {
        const std::string what = cannot("cannot be bound to its buffers");
        void *made = nullptr;
        library_.check(
            library_.call<Call::create_cpu_memory_info>(onnx::arena_allocator, onnx::memory_default, &made), what);
        const onnx::Handle<Call::release_memory_info> memory(library_, made);
        for (std::size_t count = fixed_ > 0 ? fixed_ : 1; count <= rows_held(); ++count) {
            const auto rows_wide = static_cast<std::int64_t>(count);
            void *binding = nullptr;
            library_.check(library_.call<Call::create_io_binding>(session_.get(), &binding), what);
            bindings_.emplace_back(library_, binding);
            const std::array<std::int64_t, 2> in{rows_wide, static_cast<std::int64_t>(feature_width)};
            const void *value = tensor(memory.get(), rows(), count * feature_width, in.data(), in.size(), what);
            library_.check(library_.call<Call::bind_input>(binding, input_.name.c_str(), value), what);
            const std::array<std::int64_t, 2> out{rows_wide, 1};
            value = tensor(memory.get(), scores(), count, out.data(), output_.shape.sizes.size(), what);
            library_.check(library_.call<Call::bind_output>(binding, output_.name.c_str(), value), what);
        }
    }
    [[nodiscard]] const void *tensor(const void *memory, float *data, std::size_t floats, const std::int64_t *sizes,
                                     std::size_t rank, const std::string &what) {
        void *value = nullptr;
        library_.check(library_.call<Call::create_tensor_with_data>(memory, static_cast<void *>(data),
                                                                    floats * sizeof(float), sizes, rank,
                                                                    onnx::element_float, &value),
                       what);
        values_.emplace_back(library_, value);
        return value;
    }

    // onnxruntime plans its memory when it first sees a shape; and a model that doesn't keep the promise of its shapes
    // is found out here.
    void warm_up() {
        for (std::size_t count = fixed_ > 0 ? max_batch_ : 1; count <= max_batch_; ++count) {
            submit(0, count);
            if (poll(0) == Status::failed) {
                throw std::runtime_error(error());
            }
        }
    }

    [[nodiscard]] std::size_t rows_held() const noexcept { return fixed_ > 0 ? fixed_ : max_batch_; }
    [[nodiscard]] float *rows() const noexcept { return reinterpret_cast<float *>(memory_.data()); }
    [[nodiscard]] float *scores() const noexcept { return rows() + rows_held() * feature_width; }

    static constexpr const char *needs = "float32 [N, 64] in and float32 [N] or [N, 1] out";

    std::string model_;
    onnx::Library library_;
    onnx::Handle<Call::release_env> env_;
    onnx::Handle<Call::release_session> session_;
    Port input_;
    Port output_;
    std::size_t fixed_;
    std::size_t max_batch_;
    Pages memory_;
    std::vector<Value> values_;
    std::vector<Binding> bindings_; // before the tensors and the session that they are of
    onnx::Status *failure_ = nullptr; // the last one
    bool failed_ = false;
};

} // namespace hwtune
