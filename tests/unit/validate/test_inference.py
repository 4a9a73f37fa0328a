"""The inference engines, against the reference model in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwtune import _native as native
from hwtune.validate import perceptron

ISAS = native.cpu_isas()


def some_rows(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (count, 64)).astype(np.float32)


def test_the_model_has_as_many_parameters_as_it_says_and_its_scores_spread():
    made = perceptron.parameters()
    assert sum(weights.size + biases.size for weights, biases in made) == 205_825
    assert [weights.shape for weights, _ in made] == [(64, 512), (512, 256), (256, 128), (128, 64), (64, 1)]
    scores = perceptron.scores(some_rows(2_000))
    assert np.quantile(scores, 0.1) < 0.2
    assert np.quantile(scores, 0.9) > 0.8


def test_parameters_are_the_words_of_splitmix64():
    first = perceptron.parameters()[0][0][0]
    scale = np.float32(
        np.sqrt(6 / 64) * 2.0**-23
    )  # the first two words are e220a8397b1dcdaf, 6e789e6aa1b965f4
    assert first[0] == np.float32(0xE220A8 - 0x800000) * scale
    assert first[1] == np.float32(0x6E789E - 0x800000) * scale


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("max_batch", [1, 2, 5, 32, 127, 128])
def test_the_cpu_engine_scores_within_1e_5_of_float64(isa, max_batch):
    rows = some_rows(300)
    engine = native.make_cpu_engine(max_batch, isa)
    np.testing.assert_allclose(engine.infer(rows), perceptron.scores(rows), rtol=0, atol=1e-5)
    assert (engine.name, engine.max_batch, engine.slots) == (f"cpu ({isa})", max_batch, 1)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 128), st.integers(0, 2**32), st.floats(0, 4))
def test_any_batch_of_any_rows_scores_within_1e_5(count, seed, size):
    rows = some_rows(count, seed) * np.float32(size)
    expected = perceptron.scores(rows)
    for isa in ISAS:
        scores = native.make_cpu_engine(128, isa).infer(rows)
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5)


def test_the_best_instructions_are_taken_unless_told_otherwise():
    assert native.make_cpu_engine(1).name == f"cpu ({ISAS[-1]})"
    assert ISAS[0] == "portable"


def test_the_null_engine_scores_all_rows_alike():
    engine = native.make_null_engine(7)
    np.testing.assert_array_equal(engine.infer(some_rows(20)), np.full(20, 0.5, np.float32))
    assert (engine.name, engine.max_batch, engine.slots) == ("null", 7, 1)


def test_no_rows_have_no_scores():
    assert native.make_cpu_engine(4).infer(some_rows(0)).shape == (0,)


@pytest.mark.parametrize("max_batch", [0, 129])
def test_batches_that_cannot_be_are_refused(max_batch):
    with pytest.raises(ValueError, match="1 to 128"):
        native.make_cpu_engine(max_batch)


def test_unknown_instructions_are_refused_by_name():
    with pytest.raises(ValueError, match="not 'sse9'"):
        native.make_cpu_engine(1, "sse9")


def test_rows_of_another_shape_or_type_are_refused():
    engine = native.make_cpu_engine(4)
    with pytest.raises(ValueError, match="64 features, not 63"):
        engine.infer(some_rows(2)[:, :63].copy())
    for wrong in (some_rows(2).astype(np.float64), some_rows(4)[::2], some_rows(1)[0]):
        with pytest.raises(TypeError):
            engine.infer(wrong)
