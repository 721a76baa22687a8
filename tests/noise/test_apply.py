"""Adding noise to arrays of every kind, and refusing the rest before anything is drawn."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, KeyStateError, MatrixDPError, ShapeError
from matrixdp.noise import ExactNoise, NoiseContext, ReleaseKey, add_noise
from matrixdp.noise.kernels import available_kernels, fastest_kernel
from reference.noise import by_specification, test_key

SHAPE = (300, 257)
RNG = np.random.default_rng(20)
VALUE = RNG.uniform(-100.0, 100.0, SHAPE)
EXPECTED = add_noise(VALUE, 3.0, test_key(20))


def test_numba_is_chosen_where_it_is_installed() -> None:
    assert type(fastest_kernel()).__name__.lower() == f"{next(iter(available_kernels()))}kernel"


def test_the_noise_is_that_of_the_specification() -> None:
    context = NoiseContext.describe(shape=SHAPE, dtype="float64", scale=3.0)
    with test_key(20).bind(context) as stream:
        words = stream.words(0, 2000)
        exact = by_specification(VALUE.ravel()[:2000], 3.0, stream, words)
    assert np.array_equal(EXPECTED.ravel()[:2000], exact)


def test_the_value_is_left_alone_unless_it_is_the_output() -> None:
    value = VALUE.copy()
    result = add_noise(value, 3.0, test_key(20))
    assert np.array_equal(value, VALUE)
    assert not np.shares_memory(result, value)
    again = add_noise(value, 3.0, test_key(20), out=value)
    assert again is value
    assert np.array_equal(value, EXPECTED)


@pytest.mark.parametrize("threads", [1, 2, 3, 7, 64])
def test_threads_do_not_change_the_result(threads: int) -> None:
    out = np.empty(SHAPE)
    assert add_noise(VALUE, 3.0, test_key(20), out=out, threads=threads) is out
    assert np.array_equal(out, EXPECTED)


LAYOUTS: dict[str, Callable[[], NDArray[np.float64]]] = {
    "Fortran": lambda: np.zeros(SHAPE, order="F"),
    "transposed": lambda: np.zeros(SHAPE[::-1]).T,
    "every other": lambda: np.zeros((600, 771))[::2, ::3],
    "reversed": lambda: np.zeros(SHAPE)[::-1, ::-1],
    "columns of a larger one": lambda: np.zeros((300, 300))[:, 20:277],
    "unaligned": lambda: np.frombuffer(bytearray(8 * 300 * 257 + 1), offset=1).reshape(SHAPE),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_any_layout_in_memory(make: Callable[[], NDArray[np.float64]]) -> None:
    value, out = make(), make()
    value[...] = VALUE
    assert np.array_equal(add_noise(value, 3.0, test_key(20), out=out, threads=2), EXPECTED)
    assert np.array_equal(add_noise(value, 3.0, test_key(20), out=value), EXPECTED)


def test_a_read_only_value_is_fine() -> None:
    value = VALUE.copy()
    value.flags.writeable = False
    assert np.array_equal(add_noise(value, 3.0, test_key(20)), EXPECTED)


@pytest.mark.parametrize("shape", [(1,), (70_001,), (5, 7, 11), (2, 1, 3, 1), (0,), (4, 0, 2)])
def test_any_number_of_axes(shape: tuple[int, ...]) -> None:
    result = add_noise(np.zeros(shape), 1.0, test_key(21))
    context = NoiseContext.describe(shape=shape, dtype="float64", scale=1.0)
    noise = ExactNoise(test_key(21).bind(context), 1.0)
    assert result.shape == shape
    assert np.array_equal(result.ravel(), noise.add_range(np.zeros(result.size), 0))


def test_float32_is_rounded_once_more_from_the_grid_point() -> None:
    value = VALUE.astype(np.float32)
    result = add_noise(value, 3.0, test_key(22))
    context = NoiseContext.describe(shape=SHAPE, dtype="float32", scale=3.0)
    assert result.dtype == np.float32
    with test_key(22).bind(context) as stream:
        words = stream.words(0, 1000)
        exact = by_specification(value.ravel()[:1000], 3.0, stream, words)
    assert np.array_equal(result.ravel()[:1000], exact)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_noise_shows_on_the_largest_values(dtype: type) -> None:
    largest: NDArray[Any] = np.full(1000, 2.0 ** np.finfo(dtype).nmant, dtype=dtype)
    for scale in (1.0, 1.9):
        noise = add_noise(largest, scale, test_key(23)).astype(np.float64) - largest
        # Rounded to integers, noise of scale 1 is 0 in 38 cases of 100.
        assert 0.1 < np.mean(noise == 0.0) < 0.5
        assert 0.9 * scale < np.std(noise) < 1.2 * scale


@pytest.mark.parametrize(("dtype", "value"), [(np.float64, 2.0**80), (np.float32, 2.0**40)])
def test_values_that_would_swallow_their_noise_are_refused(dtype: type, value: float) -> None:
    key = ReleaseKey.generate()
    with pytest.raises(InvalidParameterError, match=r"noise of scale 3\.7") as caught:
        add_noise(np.full(3, value, dtype=dtype), 3.7, key)
    assert repr(float(value)) not in str(caught.value)
    assert repr(2.0 * 2.0 ** np.finfo(dtype).nmant) in str(caught.value)
    assert repr(key) == "ReleaseKey(unbound)"


@pytest.fixture(params=["one", "per row", "per column", "per element"])
def scale(request: pytest.FixtureRequest) -> Any:
    rng = np.random.default_rng(24)
    shapes = {"per row": (300, 1), "per column": (1, 257), "per element": SHAPE}
    return rng.uniform(0.5, 9.0, shapes[request.param]) if request.param in shapes else 2.5


@pytest.mark.parametrize("make_kernel", available_kernels().values(), ids=available_kernels())
def test_tiles_ranges_and_the_whole_agree(scale: Any, make_kernel: Any) -> None:
    context = NoiseContext.describe(shape=SHAPE, dtype="float64", scale=scale)
    noise = ExactNoise(test_key(25).bind(context), scale, make_kernel=make_kernel)
    whole = noise.add(VALUE)
    for rows, columns in [((0, 300), (0, 257)), ((5, 6), (3, 4)), ((17, 250), (100, 257))]:
        part = (slice(*rows), slice(*columns))
        tile = noise.add_tile(VALUE[part], (rows[0], columns[0]), threads=2)
        assert np.array_equal(tile, whole[part])
    flat = VALUE.ravel()
    for start, stop in [(0, flat.size), (256, 258), (1000, 40_000), (77_099, 77_100)]:
        values = flat[start:stop].copy()
        noise.add_range(values, start, out=values, threads=3)
        assert np.array_equal(values, whole.ravel()[start:stop])


def test_scales_enter_where_they_belong() -> None:
    scales = np.array([[1e-6], [1e3]])
    result = add_noise(np.zeros((2, 5000)), scales, test_key(26))
    assert np.allclose(result.std(axis=1), scales.ravel(), rtol=0.05)
    assert (result[0] * 2.0**40 % 1 == 0).all()
    assert (result[1] * 2.0**11 % 1 == 0).all()


def test_caution_with_floating_point_warnings_changes_nothing() -> None:
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        value = np.full(200_000, 1e-300)
        noisy = add_noise(value, 2.0**890, test_key(27), out=value)
    assert np.isfinite(noisy).all()


def overlapping() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    memory = np.zeros(12)
    return memory[:10].reshape(2, 5), memory[2:].reshape(2, 5)


def read_only() -> NDArray[np.float64]:
    array = np.zeros((2, 5))
    array.flags.writeable = False
    return array


def with_element(element: float) -> NDArray[np.float64]:
    array = np.zeros((300, 400))
    array[-1, 7] = element
    return array


ZEROS = np.zeros((2, 5))
BAD: dict[str, tuple[Any, Any, dict[str, Any], type[MatrixDPError], str]] = {
    "nan": (with_element(np.nan), 1.0, {}, InvalidParameterError, "finite"),
    "infinity": (with_element(np.inf), 1.0, {}, InvalidParameterError, "finite"),
    "minus infinity": (with_element(-np.inf), 1.0, {}, InvalidParameterError, "finite"),
    "large value": (with_element(2.0**200), 2.0**-800, {}, InvalidParameterError, "finite"),
    "large float32": (np.full((2, 2), 2e38, "f4"), 1.0, {}, InvalidParameterError, "finite"),
    "zero scale": (ZEROS, 0.0, {}, InvalidParameterError, "scale must be"),
    "negative scale": (ZEROS, -1.0, {}, InvalidParameterError, "scale must be"),
    "nan scale": (ZEROS, float("nan"), {}, InvalidParameterError, "scale must be finite"),
    "infinite scale": (ZEROS, float("inf"), {}, InvalidParameterError, "scale must be"),
    "one bad scale": (ZEROS, [[1.0], [np.nan]], {}, InvalidParameterError, "scale must be"),
    "small scale": (ZEROS, 2.0**-901, {}, InvalidParameterError, "rescale"),
    "large scale": (ZEROS, 2.0**901, {}, InvalidParameterError, "rescale"),
    "float32 scale": (ZEROS.astype("f4"), 2.0**101, {}, InvalidParameterError, "rescale"),
    "words for a scale": (ZEROS, "much", {}, InvalidParameterError, "real number"),
    "complex scale": (ZEROS, 1j, {}, InvalidParameterError, "real number"),
    "true for a scale": (ZEROS, True, {}, InvalidParameterError, "booleans"),
    "scale of a vector": (ZEROS, np.ones(5), {}, ShapeError, "does not fit"),
    "scale of another shape": (ZEROS, np.ones((3, 1)), {}, ShapeError, "does not fit"),
    "integers": (np.zeros((2, 5), int), 1.0, {}, InvalidParameterError, "astype"),
    "big-endian": (np.zeros((2, 5), ">f8"), 1.0, {}, InvalidParameterError, "little-endian"),
    "half precision": (np.zeros((2, 5), "f2"), 1.0, {}, InvalidParameterError, "float32"),
    "a list": ([[1.0]], 1.0, {}, InvalidParameterError, "numpy array"),
    "masked": (np.ma.zeros((2, 5)), 1.0, {}, InvalidParameterError, "masked"),
    "a number": (np.float64(1.0), 1.0, {}, InvalidParameterError, "numpy array"),
    "no axes": (np.array(1.0), 1.0, {}, ShapeError, "at least one axis"),
    "read-only output": (ZEROS, 1.0, {"out": read_only()}, InvalidParameterError, "read-only"),
    "output of another shape": (ZEROS, 1.0, {"out": np.zeros((5, 2))}, ShapeError, "out has shape"),
    "output of another type": (
        *(ZEROS, 1.0, {"out": np.zeros((2, 5), "f4")}, InvalidParameterError),
        "value's type",
    ),
    "an output that is no array": (ZEROS, 1.0, {"out": []}, InvalidParameterError, "numpy array"),
    "overlapping output": (
        *(overlapping()[0], 1.0, {"out": None}, InvalidParameterError),
        "overlaps the value",
    ),
    "no threads": (ZEROS, 1.0, {"threads": 0}, InvalidParameterError, "threads=0"),
    "a thread and a half": (ZEROS, 1.0, {"threads": 1.5}, InvalidParameterError, "threads=1.5"),
    "endless threads": (ZEROS, 1.0, {"threads": np.inf}, InvalidParameterError, "threads=inf"),
    "threads in words": (ZEROS, 1.0, {"threads": "2"}, InvalidParameterError, "threads='2'"),
    "true for threads": (ZEROS, 1.0, {"threads": True}, InvalidParameterError, "threads=True"),
    "odd integer scale": (ZEROS, 2**53 + 1, {}, InvalidParameterError, "exactly"),
    "odd integer scales": (
        *(ZEROS, np.array([[1], [2**60 + 1]]), {}, InvalidParameterError),
        "exactly",
    ),
    "odd unsigned scale": (ZEROS, np.uint64(2**64 - 1), {}, InvalidParameterError, "exactly"),
    "odd integer in a list": (ZEROS, [[0.5], [2**53 + 1]], {}, InvalidParameterError, "exactly"),
    "ragged scale": (ZEROS, [[1.0], [1.0, 2.0]], {}, ShapeError, "different lengths"),
    "masked scale": (ZEROS, np.ma.ones((2, 5)), {}, InvalidParameterError, "masked"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_bad_input_is_refused_before_anything_is_drawn(case: Any) -> None:
    value, scale, options, error, message = case
    if message == "overlaps the value":
        value, out = overlapping()
        options = {"out": out}
    out = options.get("out")
    before = np.array(out, copy=True) if isinstance(out, np.ndarray) else None
    key = ReleaseKey.generate()
    with pytest.raises(error, match=message):
        add_noise(value, scale, key, **options)
    assert repr(key) == "ReleaseKey(unbound)"
    if before is not None:
        assert np.array_equal(out, before)


def test_scales_that_float64_holds_are_taken() -> None:
    expected = add_noise(ZEROS, 2.0**53, test_key(32))
    for scale in (2**53, np.uint64(2**53), np.float32(2**53), [[2**53]]):
        assert np.array_equal(add_noise(ZEROS, scale, test_key(32)), expected)
    assert np.isfinite(add_noise(ZEROS, [[1, 0.5, 2.0**60, 4, 3]], test_key(32))).all()


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="long doubles are doubles here")
@pytest.mark.parametrize("base", ["1", "3e200"])
def test_long_doubles_are_never_rounded(base: str) -> None:
    key = ReleaseKey.generate()
    number = np.nextafter(np.longdouble(base), np.longdouble("inf"))
    for scale in (number, np.full((2, 1), number), np.longdouble("1e4000"), np.longdouble("nan")):
        with pytest.raises(InvalidParameterError, match="scale has dtype"):
            add_noise(ZEROS, scale, key)
    assert repr(key) == "ReleaseKey(unbound)"


class Fickle:
    """An array-like that answers something else every time."""

    def __init__(self) -> None:
        self.answers = 0

    def __array__(self, *_: Any, **__: Any) -> NDArray[np.float64]:
        self.answers += 1
        return np.full((2, 1), 2.0**self.answers)


def test_the_scale_is_asked_for_once() -> None:
    fickle = Fickle()
    noisy = add_noise(ZEROS, fickle, test_key(33))
    assert fickle.answers == 1
    assert np.array_equal(noisy, add_noise(ZEROS, np.full((2, 1), 2.0), test_key(33)))


@pytest.mark.parametrize("error", [ImportError, OSError])
def test_a_broken_numba_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def broken(name: str) -> None:
        raise error(f"{name} needs another numpy")

    available_kernels.cache_clear()
    monkeypatch.setattr("importlib.import_module", broken)
    try:
        assert list(available_kernels()) == ["numpy"]
        assert np.array_equal(add_noise(VALUE, 3.0, test_key(20)), EXPECTED)
    finally:
        available_kernels.cache_clear()


def test_a_kernel_that_cannot_be_made_spends_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("the compiler is broken")

    monkeypatch.setattr("matrixdp.noise.application.add.fastest_kernel", fail)
    key = ReleaseKey.generate()
    with pytest.raises(RuntimeError, match="compiler"):
        add_noise(VALUE, 3.0, key)
    assert repr(key) == "ReleaseKey(unbound)"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_signalling_nan_is_refused_like_any_other(threads: int) -> None:
    value = np.zeros((2, 1 << 22), dtype=np.float32)
    value.view(np.uint32)[1, 5] = 0x7FA00000
    with np.errstate(all="raise"), pytest.raises(InvalidParameterError, match="finite"):
        add_noise(value, 1.0, test_key(34), threads=threads)


def test_threads_find_a_bad_element_too() -> None:
    value = np.zeros((3, 1 << 22), dtype=np.float32)
    value[1, 17] = np.nan
    with pytest.raises(InvalidParameterError, match="finite"):
        add_noise(value, 1.0, ReleaseKey.generate(), threads=3)


def test_other_overlaps_are_refused_too() -> None:
    scales = np.ones((2, 5))
    with pytest.raises(InvalidParameterError, match="overlaps the scales"):
        add_noise(ZEROS, scales, test_key(28), out=scales)
    window = np.lib.stride_tricks.as_strided(np.zeros(6), (2, 5), (8, 8))
    with pytest.raises(InvalidParameterError, match="share memory"):
        add_noise(ZEROS, 1.0, test_key(28), out=window)
    square = np.zeros((4, 4))
    with pytest.raises(InvalidParameterError, match="overlaps the value"):
        add_noise(square, 1.0, test_key(28), out=square.T)


def test_interleaved_arrays_do_not_overlap() -> None:
    memory = np.zeros((4, 10))
    result = add_noise(memory[:, ::2], 1.0, test_key(29), out=memory[:, 1::2])
    assert not memory[:, ::2].any()
    assert result.all()


def test_messages_hold_no_data() -> None:
    with pytest.raises(InvalidParameterError) as caught:
        add_noise(np.array([[123456.789, np.nan]]), 1.0, test_key(30))
    assert "123456" not in str(caught.value)


def test_a_stream_serves_its_own_context_only() -> None:
    context = NoiseContext.describe(shape=(2, 5), dtype="float64", scale=1.0)
    stream = test_key(31).bind(context)
    with pytest.raises(KeyStateError, match="other scales"):
        ExactNoise(stream, 1.5)
    noise = ExactNoise(stream, 1.0)
    with pytest.raises(ShapeError, match="bound to shape"):
        noise.add(np.zeros((5, 2)))
    with pytest.raises(InvalidParameterError, match="bound to '<f8'"):
        noise.add(np.zeros((2, 5), dtype=np.float32))
    for tile, origin in [((1, 1), (2, 0)), ((3, 5), (0, 0)), ((1, 1), (0, -1)), ((1,), (0,))]:
        with pytest.raises(ShapeError, match="does not fit into"):
            noise.add_tile(np.zeros(tile), origin)
    for count, start in [(1, 10), (11, 0), (1, -1)]:
        with pytest.raises(ShapeError, match="do not fit into"):
            noise.add_range(np.zeros(count), start)
    for bad in (np.nan, np.inf):
        with pytest.raises(InvalidParameterError, match="finite"):
            noise.add_range(np.array([0.0, bad]), 3)
    stream.close()
    with pytest.raises(KeyStateError, match="closed"):
        noise.add(np.zeros((2, 5)))
