// Counts of latencies in nanoseconds, to three significant digits, in memory of constant size.
//
// The buckets are those of HdrHistogram (github.com/HdrHistogram/HdrHistogram, AbstractHistogram) for lowest 1 ns,
// highest 100 s and 3 digits: 2,048 of width 1, then 1,024 in each further power of two, so that none is wider than a
// thousandth of its values. Its definitions hold too: a quantile is the highest value of the bucket that holds its
// rank, and so is the maximum; the mean takes each value for the middle of its bucket. As there, the last bucket ends
// at the next power of two, 137.4 s; what is longer is counted aside, with its sum and maximum, and takes part in
// all figures.

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace hwtune {

// Buckets that are a 64th wide, for what is counted many times over: 16 times fewer than a histogram's. Values
// beyond its limit go to the last one.
struct CoarseBuckets {
    [[nodiscard]] static constexpr std::size_t count() noexcept { return index(limit) + 1; }
    [[nodiscard]] static constexpr std::size_t index(std::uint64_t ns) noexcept {
        const std::uint64_t value = std::min(ns, limit);
        const auto power = static_cast<unsigned>(std::bit_width(value | (2 * half - 1))) - 7U;
        return power * half + static_cast<std::size_t>(value >> power);
    }

  private:
    static constexpr std::size_t half = 64;
    static constexpr std::uint64_t limit = (std::uint64_t{1} << 37U) - 1;
};

class Histogram {
  public:
    static constexpr std::uint64_t highest = 100'000'000'000;             // promised: 100 s
    static constexpr std::uint64_t limit = (std::uint64_t{1} << 37U) - 1; // the end of the last bucket

    [[nodiscard]] static constexpr std::size_t buckets() noexcept { return index_of(limit) + 1; }
    // For counts kept elsewhere: always below buckets(), where values above `limit` go to the last one.
    [[nodiscard]] static constexpr std::size_t bucket_index(std::uint64_t ns) noexcept { return index_of(std::min(ns, limit)); }
    // The lowest and the highest value of a bucket, in nanoseconds.
    [[nodiscard]] static constexpr std::uint64_t lower_bound(std::size_t bucket) noexcept {
        return bucket < linear ? bucket : (half + bucket % half) << (bucket / half - 1);
    }
    [[nodiscard]] static constexpr std::uint64_t upper_bound(std::size_t bucket) noexcept {
        return lower_bound(bucket) + (width(bucket) - 1);
    }

    Histogram() : counts_(buckets(), 0) {} // written to, so that no page is missing later

    // One thread at a time, as with everything that writes here. Allocates nothing.
    void record(std::uint64_t ns) noexcept {
        if (ns > limit) [[unlikely]] {
            record_overflow(ns, static_cast<double>(ns), 1);
            return;
        }
        ++counts_[index_of(ns)];
    }

    // Throws std::overflow_error where the sum of both counts can't be told (2^63 values).
    void merge(const Histogram &other) {
        if (count() > max_total - other.count()) {
            throw std::overflow_error("the two histograms hold more values than can be counted");
        }
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            counts_[i] += other.counts_[i];
        }
        if (other.overflow_ != 0) {
            record_overflow(other.overflow_max_, other.overflow_sum_, other.overflow_);
        }
    }

    void clear() noexcept {
        std::fill(counts_.begin(), counts_.end(), 0);
        overflow_ = 0;
        overflow_max_ = 0;
        overflow_sum_ = 0.0;
    }

    [[nodiscard]] std::uint64_t count() const noexcept {
        std::uint64_t total = overflow_;
        for (const std::uint64_t each : counts_) {
            total += each;
        }
        return total;
    }
    // Values above `limit`; they are part of count().
    [[nodiscard]] std::uint64_t overflow() const noexcept { return overflow_; }
    [[nodiscard]] std::span<const std::uint64_t> counts() const noexcept { return counts_; }

    // The figures of no values: these throw std::domain_error.
    [[nodiscard]] std::uint64_t min() const { return rank(1).lowest; }
    [[nodiscard]] std::uint64_t max() const { return rank(count()).highest; }
    [[nodiscard]] double mean() const {
        const std::uint64_t total = some(count());
        double sum = overflow_sum_;
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            sum += static_cast<double>(counts_[i]) * static_cast<double>(middle(i));
        }
        return sum / static_cast<double>(total);
    }
    // The value that a share `quantile` (0 to 1) of all values does not exceed; at 0 the minimum. Throws
    // std::invalid_argument for anything else.
    [[nodiscard]] std::uint64_t value_at(double quantile) const {
        if (!(quantile >= 0.0 && quantile <= 1.0)) {
            throw std::invalid_argument("a quantile must be from 0 to 1");
        }
        const std::uint64_t total = some(count());
        if (quantile == 0.0) {
            return rank(1).lowest;
        }
        if (quantile == 1.0) {
            return rank(total).highest;
        }
        // Stepped down first: 0.07 times 100 is a little more than 7, and not the eighth value.
        const double exact = std::ceil(std::nextafter(quantile, 0.0) * static_cast<double>(total));
        return rank(std::clamp<std::uint64_t>(static_cast<std::uint64_t>(exact), 1, total)).highest;
    }

    // In HdrHistogram's format V2, uncompressed. Values above `limit` are written as what is known of them: the
    // greatest, and all others at `limit` + 1.
    [[nodiscard]] std::vector<std::uint8_t> encode() const {
        std::vector<std::uint8_t> out;
        put(out, cookie | 0x10U, 4);
        put(out, 0, 4); // length of the payload, known below
        put(out, 0, 4); // normalizing index offset
        put(out, digits, 4);
        put(out, 1, 8); // lowest discernible value
        put(out, std::max(highest, told_max()), 8);
        put(out, std::bit_cast<std::uint64_t>(1.0), 8); // ratio of integer to double values
        put_counts(out);
        const std::size_t payload = out.size() - header;
        for (std::size_t i = 0; i < 4; ++i) {
            out[4 + i] = static_cast<std::uint8_t>(payload >> (8 * (3 - i)));
        }
        return out;
    }

    // From anywhere: throws std::invalid_argument, one sentence, for what isn't such a histogram with 1 ns and 3
    // digits. Memory and time are bounded by the size of `bytes`.
    [[nodiscard]] static Histogram decode(std::span<const std::uint8_t> bytes) {
        const std::span<const std::uint8_t> payload = checked_payload(bytes);
        const std::size_t size = buckets_for(get(bytes.subspan(24), 8));
        Histogram result;
        std::uint64_t total = 0;
        std::size_t bucket = 0;
        for (std::size_t at = 0; at < payload.size();) {
            const std::int64_t word = get_varint(payload, at);
            const std::uint64_t zeros = word < 0 ? ~static_cast<std::uint64_t>(word) + 1 : 1; // no overflow at the lowest
            if (zeros > size - bucket) {
                throw std::invalid_argument("the histogram has more counts than its header says");
            }
            if (word > 0) {
                const auto times = static_cast<std::uint64_t>(word);
                if (times > max_total - total) {
                    throw std::invalid_argument("the histogram holds more values than can be counted");
                }
                total += times;
                result.add(bucket, times);
            }
            bucket += static_cast<std::size_t>(zeros);
        }
        return result;
    }

    [[nodiscard]] bool operator==(const Histogram &) const = default;

  private:
    static constexpr std::size_t half = 1024;
    static constexpr std::size_t linear = 2 * half; // buckets of width 1
    static constexpr std::uint64_t max_total = (std::uint64_t{1} << 63U) - 1; // a Java long
    static constexpr std::uint64_t cookie = 0x1c849303;
    static constexpr std::uint64_t digits = 3;
    static constexpr std::size_t header = 40;

    struct Bucket {
        std::uint64_t lowest;
        std::uint64_t highest;
    };

    // Of any value: those above `limit` get the buckets that a longer histogram would have.
    [[nodiscard]] static constexpr std::size_t index_of(std::uint64_t ns) noexcept {
        const auto power = static_cast<unsigned>(std::bit_width(ns | (linear - 1))) - 11U;
        return power * half + static_cast<std::size_t>(ns >> power);
    }
    [[nodiscard]] static constexpr std::uint64_t width(std::size_t bucket) noexcept {
        return bucket < linear ? 1 : std::uint64_t{1} << (bucket / half - 1);
    }
    [[nodiscard]] static constexpr std::uint64_t middle(std::size_t bucket) noexcept {
        return lower_bound(bucket) + width(bucket) / 2;
    }
    // How many buckets a histogram has that goes up to `value`: whole powers of two.
    [[nodiscard]] static constexpr std::size_t buckets_for(std::uint64_t value) noexcept {
        return std::max(linear, (index_of(value) / half + 1) * half);
    }

    [[nodiscard]] static std::uint64_t some(std::uint64_t total) {
        if (total == 0) {
            throw std::domain_error("no value was recorded");
        }
        return total;
    }

    void record_overflow(std::uint64_t max, double sum, std::uint64_t times) noexcept {
        overflow_ += times;
        overflow_max_ = std::max(overflow_max_, max);
        overflow_sum_ += sum;
    }

    void add(std::size_t bucket, std::uint64_t times) noexcept {
        if (bucket < counts_.size()) {
            counts_[bucket] += times;
        } else {
            record_overflow(upper_bound(bucket), static_cast<double>(times) * static_cast<double>(middle(bucket)), times);
        }
    }

    // The bucket of the number-th smallest value, counted from 1.
    [[nodiscard]] Bucket rank(std::uint64_t number) const {
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            seen += counts_[i];
            if (seen >= number && seen != 0) {
                return {lower_bound(i), upper_bound(i)};
            }
        }
        static_cast<void>(some(overflow_));
        return {overflow_ == 1 ? overflow_max_ : limit + 1, overflow_max_};
    }

    // HdrHistogram's values are signed.
    [[nodiscard]] std::uint64_t told_max() const noexcept { return std::min(overflow_max_, max_total); }

    static void put(std::vector<std::uint8_t> &out, std::uint64_t value, unsigned bytes) {
        for (unsigned i = bytes; i-- > 0;) {
            out.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
        }
    }
    [[nodiscard]] static std::uint64_t get(std::span<const std::uint8_t> bytes, std::size_t size) noexcept {
        std::uint64_t value = 0;
        for (const std::uint8_t byte : bytes.first(size)) {
            value = value << 8U | byte;
        }
        return value;
    }

    // ZigZag, then LEB128 whose ninth byte has all its eight bits (ZigZagEncoding.java of HdrHistogram).
    static void put_varint(std::vector<std::uint8_t> &out, std::int64_t value) {
        std::uint64_t rest = static_cast<std::uint64_t>(value) << 1U ^ static_cast<std::uint64_t>(value >> 63U);
        for (int i = 0; i < 8 && rest > 0x7f; ++i, rest >>= 7U) {
            out.push_back(static_cast<std::uint8_t>(rest | 0x80U));
        }
        out.push_back(static_cast<std::uint8_t>(rest));
    }
    [[nodiscard]] static std::int64_t get_varint(std::span<const std::uint8_t> bytes, std::size_t &at) {
        std::uint64_t value = 0;
        for (unsigned i = 0; i < 9; ++i) {
            if (at == bytes.size()) {
                throw std::invalid_argument("the histogram ends in the middle of a count");
            }
            const std::uint64_t byte = bytes[at++];
            value |= (i < 8 ? byte & 0x7fU : byte) << (7 * i);
            if (i == 8 || byte < 0x80) {
                break;
            }
        }
        return static_cast<std::int64_t>(value >> 1U) ^ -static_cast<std::int64_t>(value & 1U);
    }

    // A count as it is, a run of zeros as its negative length; nothing behind the last count, one zero without any.
    void put_counts(std::vector<std::uint8_t> &out) const {
        std::int64_t zeros = 0;
        const auto each = [&](std::uint64_t times) {
            if (times == 0) {
                ++zeros;
                return;
            }
            if (zeros != 0) {
                put_varint(out, zeros == 1 ? 0 : -zeros);
                zeros = 0;
            }
            put_varint(out, static_cast<std::int64_t>(times));
        };
        for (const std::uint64_t times : counts_) {
            each(times);
        }
        if (overflow_ != 0) {
            const std::size_t last = index_of(told_max());
            for (std::size_t i = counts_.size(); i <= last; ++i) {
                each((i == counts_.size() ? overflow_ - 1 : 0) + (i == last ? 1 : 0));
            }
        }
        if (out.size() == header) {
            put_varint(out, 0);
        }
    }

    [[nodiscard]] static std::span<const std::uint8_t> checked_payload(std::span<const std::uint8_t> bytes) {
        if (bytes.size() < header) {
            throw std::invalid_argument("a histogram's header has 40 bytes, and here are " + std::to_string(bytes.size()));
        }
        if ((get(bytes, 4) & ~std::uint64_t{0xf0}) != cookie) {
            throw std::invalid_argument("this is no histogram in HdrHistogram's uncompressed format V2");
        }
        if (get(bytes.subspan(4), 4) != bytes.size() - header) {
            throw std::invalid_argument("the histogram's header and its size disagree");
        }
        if (get(bytes.subspan(8), 4) != 0 || get(bytes.subspan(32), 8) != std::bit_cast<std::uint64_t>(1.0)) {
            throw std::invalid_argument("shifted and fractional histograms are not read");
        }
        const std::uint64_t told_highest = get(bytes.subspan(24), 8);
        if (get(bytes.subspan(12), 4) != digits || get(bytes.subspan(16), 8) != 1) {
            throw std::invalid_argument("only histograms with 3 significant digits from 1 are read");
        }
        if (told_highest < 2 || told_highest > max_total) {
            throw std::invalid_argument("the histogram's highest value is none that it can have");
        }
        return bytes.subspan(header);
    }

    std::vector<std::uint64_t> counts_;
    std::uint64_t overflow_ = 0;
    std::uint64_t overflow_max_ = 0;
    double overflow_sum_ = 0.0;
};

static_assert(Histogram::buckets() == 28 * 1024); // as HdrHistogram: 27 powers of two, and the first one's lower half
static_assert(Histogram::limit >= Histogram::highest);

} // namespace hwtune
