"""Several values that are released under one payment, and refusals before there is one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledger.doors import BALL, BUDGET, MATRIX, files_in, opened
from matrixdp import IMGM, Budget, FrobeniusBall, InvalidParameterError, PrivacyFilter, Release
from matrixdp.baselines import AnalyticGaussian
from matrixdp.errors import FileFormatError, MissingExtraError
from matrixdp.files.formats import arrow_format
from matrixdp.files.publishing.paid_release import PaidMatrix, release_prepared_to
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.noise.keys.context import NoiseContext
from matrixdp.noise.keys.parts import secret_of_part
from matrixdp.noise.keys.release_key import ReleaseKey
from matrixdp.noise.keys.value_tag import ValueTag
from matrixdp.privacy.composition import composed_mu
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.queries import ClippedRecords, Mean, MeanRelease, PublicBounds, Sum

RECORDS = np.random.default_rng(0).uniform(-1, 1, (40, 1))


def test_a_sum_and_a_count_of_one_scale_have_noise_of_their_own(tmp_path: Path) -> None:
    # Of one column and norm 1, both are one number that a record changes by 1.
    query = Mean(PublicBounds(1, norm=1.0), "add-remove")
    exact = Sum(PublicBounds(1, norm=1.0), "add-remove").evaluate(RECORDS)
    for release in (
        query.release(RECORDS, BUDGET),
        query.release_to(tmp_path / "means.npy", RECORDS, BUDGET),
    ):
        assert release.total.covariance == release.count.covariance
        noise = release.total.value - exact
        assert noise != release.count.value - len(RECORDS)
    loaded = MeanRelease.load(tmp_path / "means.npy")
    np.testing.assert_array_equal(loaded.value, np.load(tmp_path / "means.npy"))
    assert loaded.guarantee == release.guarantee


def test_parts_have_secrets_of_their_own() -> None:
    secret = bytes(range(32))
    found = {secret, secret_of_part(secret, "records"), secret_of_part(secret, "clipped")}
    assert len(found) == 3
    assert secret_of_part(secret, "records") == secret_of_part(secret, "records")
    assert secret_of_part(bytes(32), "records") not in found


def test_a_count_beside_a_matrix_is_tagged_too(tmp_path: Path) -> None:
    bounds = PublicBounds(2, norm=1.0)
    shares = BUDGET.split([9, 1])
    of_sum = IMGM(Sum(bounds, "add-remove"), shares[0])
    of_count = IMGM(ClippedRecords(bounds, "add-remove"), shares[1])
    both = Guarantee.of_budget(
        BUDGET, mu=composed_mu([of_sum.mu, of_count.mu]), neighbouring="add-remove"
    )

    def parts(count: float) -> PaidMatrix:
        main = of_sum.prepared([[1.0, 2.0]])
        return PaidMatrix(
            main=main._replace(promise=main.promise._replace(guarantee=both)),
            counts={"clipped": of_count.prepared([[count]])},
            query="sums",
        )

    def publication(count: float) -> Any:
        return parts(count).publication(tmp_path / "out.csv", lambda _: "")

    assert publication(3.0).tag(bytes(32)) == publication(3.0).tag(bytes(32))
    assert publication(3.0).tag(bytes(32)) != publication(4.0).tag(bytes(32))
    with opened(tmp_path) as account:
        done = release_prepared_to(
            parts(3.0),
            tmp_path / "out.csv",
            privacy_filter=account,
            request="June",
            force=False,
            threads=None,
        )
        assert float(account.balance.spent.mu_squared) == pytest.approx(both.mu**2, rel=1e-15)
        again = release_prepared_to(
            parts(3.0),
            tmp_path / "out.csv",
            privacy_filter=account,
            request="June",
            force=False,
            threads=None,
        )
    assert again.counts["clipped"].value == done.counts["clipped"].value
    assert Release.verify(tmp_path / "out.csv") == both


@pytest.mark.parametrize("shape", [(0, 3), (1, 5), (7, 1), (300, 200)])
def test_a_tag_does_not_depend_on_layout_or_on_parts(shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(0).standard_normal(shape)
    context = NoiseContext.describe(shape=shape, dtype="float64", scale=1.0)

    def tag(*parts: Any, statement: bytes = b"", secret: bytes = bytes(32)) -> bytes:
        code = ValueTag(secret, context, statement)
        for part in parts:
            code.update(part)
        return code.digest()

    whole = tag(matrix)
    wide = np.zeros((shape[0], 2 * shape[1]))
    wide[:, ::2] = matrix
    assert tag(np.asfortranarray(matrix)) == whole
    assert tag(wide[:, ::2]) == whole
    assert tag(*np.array_split(matrix.reshape(-1), 3)) == whole
    assert tag(matrix, statement=b"other") != whole
    assert tag(matrix, secret=bytes([1] * 32)) != whole
    if matrix.size:
        matrix[-1, -1] = np.nextafter(matrix[-1, -1], 9.0)
        assert tag(matrix) != whole


def test_a_tag_is_no_noise_of_the_same_secret() -> None:
    # The code's key and the stream's keys come from the secret by different texts.
    context = NoiseContext.describe(shape=(2, 2), dtype="float64", scale=1.0)
    stream = ReleaseKey.from_bytes(bytes(32)).bind(context)
    assert ValueTag(bytes(32), context, b"").digest() not in stream.export_secret()


@pytest.mark.parametrize(
    ("name", "matrix", "error"),
    [
        ("out.txt", MATRIX, InvalidParameterError),
        ("out", MATRIX, InvalidParameterError),
        ("none/out.npy", MATRIX, InvalidParameterError),
        ("out\0.npy", MATRIX, InvalidParameterError),
        ("out.parquet", MatrixFile(MATRIX, columns=["a", "a", "b", "c"]), FileFormatError),
        ("out.csv", MatrixFile(MATRIX, columns=["a", "b", "c", "\ud800"]), ValueError),
        ("out.csv", MatrixFile(MATRIX, list("abcd"), ["x", "y", "\ud800"]), ValueError),
        ("out.npy", MATRIX * 1e300, InvalidParameterError),
    ],
)
def test_what_cannot_be_written_costs_nothing(
    name: str, matrix: Any, error: type[Exception], tmp_path: Path
) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="an extra")
    paying = PrivacyFilter(Budget(4.0, 1e-5), neighbouring="add-remove")
    with opened(tmp_path) as account:
        for payer in (paying, account):
            with pytest.raises(error):
                IMGM(BALL, BUDGET).release_to(tmp_path / name, matrix, privacy_filter=payer)
        assert paying.spent == account.balance.spent.mu_squared == 0
    assert files_in(tmp_path) == {}


def test_a_library_that_is_missing_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any) -> Any:
        raise MissingExtraError("pyarrow is not installed")

    monkeypatch.setattr(arrow_format, "arrow_module", missing)
    paying = PrivacyFilter(Budget(4.0, 1e-5), neighbouring="add-remove")
    with pytest.raises(MissingExtraError):
        IMGM(BALL, BUDGET).release_to(tmp_path / "out.arrow", MATRIX, privacy_filter=paying)
    assert paying.spent == 0.0


def test_bad_requests_cost_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as account:
        for request in ("", "x" * 201, 7):
            with pytest.raises(InvalidParameterError, match="request="):
                IMGM(BALL, BUDGET).release_to(
                    tmp_path / "out.npy",
                    MATRIX,
                    privacy_filter=account,
                    request=request,  # type: ignore[arg-type]
                )
        assert account.balance.spent.mu_squared == 0


def test_labels_that_a_format_leaves_out_are_warned_of(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas", reason="frames are tested with pandas")
    frame = pd.DataFrame(MATRIX, columns=list("abcd"))
    with pytest.warns(UserWarning, match="labels are left out"):
        IMGM(BALL, BUDGET).release_to(tmp_path / "out.npy", frame)
    release = IMGM(BALL, BUDGET).release_to(tmp_path / "out.csv", frame)
    assert list(release.value.columns) == list("abcd")


def test_a_query_names_itself_and_its_mechanism(tmp_path: Path) -> None:
    query = Sum(PublicBounds(1, norm=1.0), "add-remove")
    other = FrobeniusBall(2.0, "add-remove")

    class Odd:
        sensitivity = query.sensitivity

    with pytest.raises(InvalidParameterError, match="another sensitivity"):
        query.release_to(
            tmp_path / "o.npy", RECORDS, BUDGET, mechanism=lambda _, budget: IMGM(other, budget)
        )
    with pytest.raises(InvalidParameterError, match="makes a Odd"):
        query.release_to(tmp_path / "o.npy", RECORDS, BUDGET, mechanism=lambda *_: Odd())  # type: ignore[arg-type]
    mean = Mean(PublicBounds(1, norm=1.0), "add-remove")
    with pytest.raises(InvalidParameterError, match="mechanism is for one release"):
        mean.release_to(tmp_path / "o.npy", RECORDS, BUDGET, mechanism=AnalyticGaussian)
    assert files_in(tmp_path) == {}
