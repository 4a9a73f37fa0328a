"""A user's own ONNX model: scored as it should be, or refused with one sentence that says what is needed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from hwtune import _native as native
from hwtune.errors import UsageError
from hwtune.validate import onnx, perceptron
from hwtune.validate.onnx_file import FLOAT64, Node, Port, model, reference_model

NEEDS = re.escape("it needs float32 [N, 64] in and float32 [N] or [N, 1] out")
ROWS = Port("rows", ("N", 64))
SCORES = Port("scores", ("N", 1))
COLUMN = {"weights": np.linspace(-0.1, 0.1, 64, dtype=np.float32).reshape(64, 1)}
MULTIPLY = Node("MatMul", ("rows", "weights"), "scores")

needs_onnxruntime = pytest.mark.skipif(find_spec("onnxruntime") is None, reason="needs onnxruntime")


def some_rows(count: int) -> np.ndarray:
    return np.random.default_rng(3).uniform(-1, 1, (count, 64)).astype(np.float32)


@pytest.fixture
def written(tmp_path):
    def write(content: bytes) -> str:
        path = tmp_path / "model.onnx"
        path.write_bytes(content)
        return str(path)

    return write


@needs_onnxruntime
@pytest.mark.parametrize("max_batch", [1, 3, 32])
def test_the_reference_model_scores_like_the_cpu_engine(written, max_batch):
    rows = some_rows(100)
    engine = onnx.onnx_engine(written(reference_model()), max_batch)
    scores = engine.infer(rows)
    np.testing.assert_allclose(scores, native.make_cpu_engine(max_batch).infer(rows), rtol=0, atol=1e-5)
    np.testing.assert_allclose(scores, perceptron.scores(rows), rtol=0, atol=1e-5)
    assert re.fullmatch(r"onnx \(onnxruntime 1\.\d+\.\d+\)", engine.name)
    assert (engine.max_batch, engine.slots) == (max_batch, 1)


@needs_onnxruntime
def test_scores_may_be_a_vector(written):
    flat = {"weights": COLUMN["weights"].reshape(64)}
    engine = onnx.onnx_engine(written(model([MULTIPLY], [ROWS], [Port("scores", ("N",))], flat)), 8)
    rows = some_rows(20)
    np.testing.assert_allclose(engine.infer(rows), rows @ flat["weights"], rtol=0, atol=1e-6)


@needs_onnxruntime
def test_a_fixed_batch_is_run_whole_and_takes_no_more(written):
    path = written(model([MULTIPLY], [Port("rows", (8, 64))], [Port("scores", (8, 1))], COLUMN))
    rows = some_rows(19)
    expected = (rows @ COLUMN["weights"])[:, 0]
    for asked, taken in [(32, 8), (8, 8), (3, 3)]:
        engine = onnx.onnx_engine(path, asked)
        assert engine.max_batch == taken
        np.testing.assert_allclose(engine.infer(rows), expected, rtol=0, atol=1e-6)


WRONG_MODELS = {
    "63 features": (
        model([MULTIPLY], [Port("rows", ("N", 63))], [SCORES], {"weights": COLUMN["weights"][:63]}),
        r"takes float32 \[N, 63\]; " + NEEDS,
    ),
    "a row alone": (
        model([Node("Identity", ("rows",), "scores")], [Port("rows", (64,))], [Port("scores", (64,))], {}),
        r"takes float32 \[64\]; " + NEEDS,
    ),
    "any width": (
        model(
            [Node("Identity", ("rows",), "scores")],
            [Port("rows", ("N", "M"))],
            [Port("scores", ("N", "M"))],
            {},
        ),
        r"takes float32 \[N, N\]; " + NEEDS,
    ),
    "float64": (
        model(
            [Node("Abs", ("rows",), "scores")],
            [Port("rows", ("N", 64), FLOAT64)],
            [Port("scores", ("N", 64), FLOAT64)],
            {},
        ),
        r"takes float64 \[N, 64\]; " + NEEDS,
    ),
    "two scores": (
        model([MULTIPLY], [ROWS], [Port("scores", ("N", 2))], {"weights": np.ones((64, 2), np.float32)}),
        r"gives float32 \[N, 2\]; " + NEEDS,
    ),
    "two inputs": (
        model([Node("Add", ("rows", "more"), "scores")], [ROWS, Port("more", ("N", 64))], [SCORES], {}),
        "has 2 inputs; it needs one, ",
    ),
    "two outputs": (
        model(
            [MULTIPLY, Node("Relu", ("scores",), "more")], [ROWS], [SCORES, Port("more", ("N", 1))], COLUMN
        ),
        "has 2 outputs; it needs one, ",
    ),
    "one score for any batch": (
        model([Node("ReduceSum", ("rows",), "scores")], [ROWS], [Port("scores", (1, 1))], {}),
        r"takes float32 \[N, 64\] and gives float32 \[1, 1\]; " + NEEDS,
    ),
    "64 scores a row, though it promises one": (
        model([Node("Reshape", ("rows", "shape"), "scores")], [ROWS], [SCORES], {"shape": np.array([-1, 1])}),
        "failed in onnxruntime: .*shape",
    ),
    "an operator that there isn't": (
        model([Node("Prophesy", ("rows",), "scores")], [ROWS], [SCORES], {}),
        "cannot be loaded: .*Prophesy",
    ),
    "not a model": (b"<html>404</html>", "cannot be loaded: "),
    "empty": (b"", "cannot be loaded: "),
    "cut off": (reference_model()[:100_000], "cannot be loaded: "),
    "a batch too large": (
        model([MULTIPLY], [Port("rows", (1025, 64))], [Port("scores", (1025, 1))], COLUMN),
        "has a batch of 1025; the most is 1,024",
    ),
}


@needs_onnxruntime
@pytest.mark.parametrize("content, sentence", WRONG_MODELS.values(), ids=WRONG_MODELS)
def test_a_model_that_cannot_be_used_is_refused_in_one_sentence(written, content, sentence, capfd):
    with pytest.raises(UsageError, match=sentence) as refused:
        onnx.onnx_engine(written(content), 4)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("the model ")
    assert capfd.readouterr() == ("", "")  # onnxruntime's own log is silent


@needs_onnxruntime
@pytest.mark.parametrize("max_batch", [0, 1025])
def test_batches_that_cannot_be_are_refused(written, max_batch):
    with pytest.raises(UsageError, match="1 to 1,024 rows"):
        onnx.onnx_engine(written(reference_model()), max_batch)


def test_a_missing_model_is_told(tmp_path):
    with pytest.raises(UsageError, match=r"there is no model file .*absent.onnx"):
        onnx.onnx_engine(str(tmp_path / "absent.onnx"), 1)


def test_a_missing_onnxruntime_is_told_with_its_remedy(written, monkeypatch):
    monkeypatch.setattr(onnx, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'hwtune\[onnx\]'"):
        onnx.onnx_engine(written(reference_model()), 1)


def test_an_onnxruntime_without_its_library_is_told(tmp_path, monkeypatch):
    (tmp_path / "onnxruntime" / "capi").mkdir(parents=True)
    (tmp_path / "onnxruntime" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"needs onnxruntime 1\.20"):
        onnx.library()


def test_what_is_no_library_is_refused(written):
    path = written(reference_model())
    with pytest.raises(RuntimeError, match=r"onnxruntime cannot be loaded: .*invalid ELF header"):
        native.make_onnx_engine(path, path, 1)
    with pytest.raises(RuntimeError, match="is not onnxruntime: it has no OrtGetApiBase"):
        native.make_onnx_engine(path, native.__file__, 1)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("version", ["1.19.2", "0.5.0", "2.0.0", "12.1.0", ""])
def test_another_version_of_the_interface_is_refused(tmp_path, version):
    source = tmp_path / "other.c"
    source.write_text(f"""
        static const char *version(void) {{ return "{version}"; }}
        static const struct {{ const void *api; const char *(*version)(void); }} base = {{0, version}};
        const void *OrtGetApiBase(void) {{ return &base; }}
    """)
    library = tmp_path / f"other{sysconfig.get_config_var('SHLIB_SUFFIX')}"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    with pytest.raises(RuntimeError, match=f"onnxruntime {version} lacks .*; it needs 1.20 or a later 1.x"):
        native.make_onnx_engine(str(tmp_path / "model"), str(library), 1)


def test_the_library_is_found_without_importing_it():
    if find_spec("onnxruntime") is None:
        pytest.skip("needs onnxruntime")
    assert Path(onnx.library()).name.startswith("libonnxruntime.so")
