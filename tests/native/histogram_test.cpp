#include "hwtune/histogram.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using hwtune::CoarseBuckets;
using hwtune::Histogram;

namespace {

std::string hex(const std::vector<std::uint8_t> &bytes) {
    constexpr std::string_view letters = "0123456789abcdef";
    std::string text;
    for (const std::uint8_t byte : bytes) {
        text += letters[byte >> 4U];
        text += letters[byte & 15U];
    }
    return text;
}

std::vector<std::uint8_t> bytes(std::string_view text) {
    std::vector<std::uint8_t> result;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
        result.push_back(static_cast<std::uint8_t>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
    }
    return result;
}

// What HdrHistogram 2.2.2 (Java) writes for new Histogram(1, 100000000000L, 3).
constexpr std::string_view empty = "1c8493130000000100000000000000030000000000000001000000174876e8003ff000000000000000";
// 0, 1, 1, 5, 2047, 2048, 2049, 4096, 1000000 twice, 99999999999, 137438953471; 300 a thousand times, 301 2^40 + 3 times
constexpr std::string_view several = "1c8493130000001f00000000000000030000000000000001000000174876e8003ff0000000000000"
                                     "02040502cb04d00f868080808040a11b0204fd0f02bf7e04df880202d70802";
// the same class up to an hour: 5, 200 s, 3000 s
constexpr std::string_view hour = "1c84931300000009000000000000000300000000000000010000034630b8a0003ff0000000000000"
                                  "090297c70302c13e02";

Histogram several_values() {
    Histogram h;
    for (const std::uint64_t ns : {0ULL, 1ULL, 1ULL, 5ULL, 2047ULL, 2048ULL, 2049ULL, 4096ULL, 1'000'000ULL, 1'000'000ULL,
                                   99'999'999'999ULL, 137'438'953'471ULL}) {
        h.record(ns);
    }
    return h;
}

std::string refusal(const std::vector<std::uint8_t> &damaged) {
    try {
        static_cast<void>(Histogram::decode(damaged));
    } catch (const std::invalid_argument &error) {
        return error.what();
    }
    return "taken";
}

// A histogram of 1 ns to 100 s with this payload.
std::vector<std::uint8_t> with_payload(std::string_view payload) {
    std::vector<std::uint8_t> made = bytes(empty.substr(0, 80));
    const std::vector<std::uint8_t> tail = bytes(payload);
    made[7] = static_cast<std::uint8_t>(tail.size());
    made.insert(made.end(), tail.begin(), tail.end());
    return made;
}

} // namespace

TEST_SUITE_BEGIN("histogram");

TEST_CASE("buckets are one wide up to 2047, then at most a thousandth of their values, without a gap") {
    CHECK(Histogram::bucket_index(0) == 0);
    CHECK(Histogram::bucket_index(2047) == 2047);
    CHECK(Histogram::bucket_index(2048) == 2048);
    CHECK(Histogram::bucket_index(2049) == 2048);
    CHECK(Histogram::bucket_index(4095) == 3071);
    CHECK(Histogram::bucket_index(4096) == 3072);
    CHECK(Histogram::bucket_index(4099) == 3072);
    CHECK(Histogram::bucket_index(4100) == 3073);
    CHECK(Histogram::lower_bound(3073) == 4100);
    CHECK(Histogram::upper_bound(3073) == 4103);
    CHECK(Histogram::upper_bound(Histogram::buckets() - 1) == Histogram::limit);
    std::uint64_t next = 0;
    for (std::size_t i = 0; i < Histogram::buckets(); ++i) {
        REQUIRE(Histogram::lower_bound(i) == next);
        REQUIRE(Histogram::bucket_index(Histogram::lower_bound(i)) == i);
        REQUIRE(Histogram::bucket_index(Histogram::upper_bound(i)) == i);
        next = Histogram::upper_bound(i) + 1;
        const std::uint64_t width = next - Histogram::lower_bound(i);
        REQUIRE((width == 1 || width * 1000 < Histogram::lower_bound(i)));
    }
    CHECK(next == Histogram::limit + 1);
}

TEST_CASE("a bucket index is in range for any value") {
    CHECK(Histogram::bucket_index(Histogram::limit + 1) == Histogram::buckets() - 1);
    CHECK(Histogram::bucket_index(std::numeric_limits<std::uint64_t>::max()) == Histogram::buckets() - 1);
}

TEST_CASE("coarse buckets are one wide up to 127, then a 64th of their power of two, without a gap") {
    CHECK(CoarseBuckets::count() == 2048);
    for (std::uint64_t ns = 0; ns < 128; ++ns) {
        CHECK(CoarseBuckets::index(ns) == ns);
    }
    CHECK(CoarseBuckets::index(129) == 128); // 128 and 129 share one
    CHECK(CoarseBuckets::index(130) == 129);
    CHECK(CoarseBuckets::index(255) == 191);
    CHECK(CoarseBuckets::index(256) == 192);
    CHECK(CoarseBuckets::index(259) == 192);
    CHECK(CoarseBuckets::index((std::uint64_t{1} << 37U) - 1) == 2047);
    CHECK(CoarseBuckets::index(~std::uint64_t{0}) == 2047);
}

TEST_CASE("figures of a hundred values, as HdrHistogram has them") {
    Histogram h;
    for (std::uint64_t i = 1; i <= 100; ++i) {
        h.record(i * 1'000'000);
    }
    CHECK(h.count() == 100);
    CHECK(h.min() == 999'936);
    CHECK(h.max() == 100'007'935);
    CHECK(h.mean() == doctest::Approx(5.049919744e7).epsilon(1e-14));
    CHECK(h.value_at(0.0) == 999'936);
    CHECK(h.value_at(0.01) == 1'000'447);
    CHECK(h.value_at(0.07) == 7'000'063); // the seventh; 0.07 * 100 is 7.000000000000001
    CHECK(h.value_at(0.5) == 50'003'967);
    CHECK(h.value_at(0.505) == 51'019'775);
    CHECK(h.value_at(0.94) == 94'044'159);
    CHECK(h.value_at(0.99) == 99'024'895);
    CHECK(h.value_at(0.995) == 100'007'935);
    CHECK(h.value_at(1.0) == 100'007'935);
}

TEST_CASE("a quantile is the smallest value that so many do not exceed") {
    Histogram h;
    for (const std::uint64_t ns : {10U, 20U, 30U, 40U}) { // one wide, so exact
        h.record(ns);
    }
    CHECK(h.value_at(0.25) == 10);
    CHECK(h.value_at(0.2500001) == 20);
    CHECK(h.value_at(0.5) == 20);
    CHECK(h.value_at(0.75) == 30);
    CHECK(h.value_at(0.76) == 40);
    CHECK(h.value_at(std::numeric_limits<double>::denorm_min()) == 10);
    CHECK(h.mean() == 25.0);
}

TEST_CASE("no values have no figures, and there are no other quantiles") {
    Histogram h;
    CHECK(h.count() == 0);
    CHECK_THROWS_AS(static_cast<void>(h.min()), std::domain_error);
    CHECK_THROWS_AS(static_cast<void>(h.max()), std::domain_error);
    CHECK_THROWS_AS(static_cast<void>(h.mean()), std::domain_error);
    CHECK_THROWS_AS(static_cast<void>(h.value_at(0.5)), std::domain_error);
    h.record(1);
    for (const double bad : {-0.001, 1.001, 99.0, std::numeric_limits<double>::quiet_NaN()}) {
        CHECK_THROWS_AS(static_cast<void>(h.value_at(bad)), std::invalid_argument);
    }
    h.clear();
    CHECK(h == Histogram());
}

TEST_CASE("values too long for a bucket are counted, told, and part of every figure") {
    Histogram h;
    h.record(Histogram::limit);
    h.record(10);
    CHECK(h.overflow() == 0);
    h.record(Histogram::limit + 1);
    h.record(500'000'000'000);
    CHECK(h.overflow() == 2);
    CHECK(h.count() == 4);
    CHECK(h.min() == 10);
    CHECK(h.max() == 500'000'000'000);
    CHECK(h.value_at(0.75) == 500'000'000'000); // all that is known of the third is that it is no longer
    CHECK(h.value_at(0.5) == Histogram::limit);
    // 137404350464 to 137438953471 is the last bucket, 2^26 wide
    CHECK(h.mean() == doctest::Approx((10.0 + 137'405'399'040.0 + 137'438'953'472.0 + 500e9) / 4).epsilon(1e-12));
    Histogram only;
    only.record(200'000'000'000);
    CHECK(only.min() == 200'000'000'000);
    CHECK(only.mean() == 200e9);
    h.clear();
    CHECK(h == Histogram());
}

TEST_CASE("merged, they are what one would have been") {
    Histogram all;
    Histogram odd;
    Histogram even;
    for (std::uint64_t ns = 1; ns < 400'000'000'000; ns = ns * 3 / 2 + 1) {
        all.record(ns);
        (ns % 2 == 1 ? odd : even).record(ns);
    }
    REQUIRE(all.overflow() >= 2);
    odd.merge(even);
    CHECK(odd.count() == all.count());
    CHECK(odd.overflow() == all.overflow());
    CHECK(odd.max() == all.max());
    CHECK(odd.encode() == all.encode());
}

TEST_CASE("written as HdrHistogram's reference writes it, to the byte") {
    CHECK(hex(Histogram().encode()) == empty);
    Histogram h = several_values();
    // 301 is counted 2^40 + 3 times: by doubling
    Histogram many;
    many.record(301);
    for (int i = 0; i < 40; ++i) {
        many.merge(Histogram(many));
    }
    h.merge(many);
    for (int i = 0; i < 3; ++i) {
        h.record(301);
    }
    for (int i = 0; i < 1000; ++i) {
        h.record(300);
    }
    CHECK(hex(h.encode()) == several);
    CHECK(h.count() == 1'099'511'628'791);
    CHECK(h.mean() == doctest::Approx(301.21594420707953).epsilon(1e-14));
    CHECK(h.value_at(1e-11) == 300); // rank 11
    CHECK(h.value_at(0.5) == 301);

    const Histogram read = Histogram::decode(bytes(several));
    CHECK(read == h);
}

TEST_CASE("a histogram with longer values is read, and they stay countable") {
    const Histogram h = Histogram::decode(bytes(hour));
    CHECK(h.count() == 3);
    CHECK(h.overflow() == 2);
    CHECK(h.min() == 5);
    // 3000 s lies in a bucket 2^31 wide: 1396 * 2^31 to 1397 * 2^31 - 1
    CHECK(h.max() == 3'000'034'656'255);
    CHECK(h.mean() == doctest::Approx(1.0663374793403334e12).epsilon(1e-14)); // as HdrHistogram says
}

TEST_CASE("long values are written for what is known of them, and are still there when read") {
    Histogram h;
    h.record(7);
    for (const std::uint64_t ns : {200'000'000'000ULL, 300'000'000'000ULL, 3'000'000'000'000ULL}) {
        h.record(ns);
    }
    const Histogram read = Histogram::decode(h.encode());
    CHECK(read.count() == 4);
    CHECK(read.overflow() == 3);
    CHECK(read.max() == 3'000'034'656'255);
    CHECK(Histogram::decode(read.encode()).encode() == read.encode());

    Histogram endless;
    endless.record(std::numeric_limits<std::uint64_t>::max());
    CHECK(Histogram::decode(endless.encode()).overflow() == 1);
}

TEST_CASE("what is damaged or foreign is refused in one sentence") {
    const std::vector<std::uint8_t> good = bytes(several);
    CHECK(refusal({}).find("40 bytes") != std::string::npos);
    for (std::size_t size = 0; size < good.size(); ++size) { // cut anywhere
        CAPTURE(size);
        CHECK(refusal({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)}) != "taken");
    }
    const auto changed = [&](std::size_t at, std::uint8_t to) {
        std::vector<std::uint8_t> other = good;
        other[at] = to;
        return refusal(other);
    };
    CHECK(changed(0, 0x1d).find("format V2") != std::string::npos);
    CHECK(changed(3, 0x14).find("format V2") != std::string::npos); // the compressed form
    CHECK(changed(7, 0x1e).find("disagree") != std::string::npos);
    CHECK(changed(11, 1).find("shifted") != std::string::npos);
    CHECK(changed(15, 2).find("3 significant digits") != std::string::npos);
    CHECK(changed(23, 2).find("from 1") != std::string::npos);
    CHECK(changed(24, 0x80).find("highest value") != std::string::npos);
    CHECK(changed(32, 0x40).find("fractional") != std::string::npos);
}

TEST_CASE("counts that can't be are refused") {
    CHECK(Histogram::decode(with_payload("02")).count() == 1);
    CHECK(refusal(with_payload("80")).find("middle of a count") != std::string::npos);
    CHECK(refusal(with_payload("ffffffffffffffff")).find("middle of a count") != std::string::npos);
    // a run of 28672 zeros fills it (zigzag 57343), and one more count is too many
    CHECK(Histogram::decode(with_payload("ffbf03")).count() == 0);
    CHECK(refusal(with_payload("ffbf0302")).find("more counts") != std::string::npos);
    CHECK(refusal(with_payload("81c003")).find("more counts") != std::string::npos);
    // -2^63 zeros, the lowest number there is
    CHECK(refusal(with_payload("ffffffffffffffffff")).find("more counts") != std::string::npos);
    // 2^63 - 1 values are the most; with one more they can't be told
    const Histogram most = Histogram::decode(with_payload("feffffffffffffffff"));
    CHECK(most.count() == (std::uint64_t{1} << 63U) - 1);
    CHECK(most.value_at(0.999) == 0);
    CHECK(refusal(with_payload("feffffffffffffffff02")).find("more values") != std::string::npos);
    Histogram one;
    one.record(1);
    CHECK_THROWS_AS(one.merge(most), std::overflow_error);
    CHECK(one.count() == 1);
}

TEST_SUITE_END();
