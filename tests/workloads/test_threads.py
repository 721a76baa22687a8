"""BLAS threads are chosen on purpose, and the caller's setting comes back."""

import pytest
from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]

from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads import Prefix, Product, Total, Union, Workload, optimal, optimal_strategy

SMALL: list[tuple[Workload, Neighbouring]] = [
    (Prefix(20), "add-remove"),
    (Prefix(10), "replace"),
    (Union([Product([Prefix(40), Total(60)]), Product([Total(40), Prefix(60)])]), "add-remove"),
]


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def threads_within(workload: Workload, neighbouring: Neighbouring) -> set[int]:
    """Return the numbers of threads seen from within a search, started with two."""
    seen: set[int] = set()
    with threadpool_limits(2, user_api="blas"):
        optimal_strategy(
            workload, neighbouring=neighbouring, progress=lambda *_: seen.update(blas_threads())
        )
        assert blas_threads() == {2}
    return seen


@pytest.mark.parametrize(("workload", "neighbouring"), SMALL, ids=repr)
def test_small_matrices_get_one_thread(workload: Workload, neighbouring: Neighbouring) -> None:
    assert threads_within(workload, neighbouring) == {1}


@pytest.mark.parametrize(("workload", "neighbouring"), SMALL, ids=repr)
def test_large_matrices_get_what_the_caller_has_set(
    workload: Workload, neighbouring: Neighbouring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimal, "_FEW_ROWS", 9)
    assert threads_within(workload, neighbouring) == {2}


def test_the_setting_comes_back_after_an_error() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with threadpool_limits(2, user_api="blas"):
        with pytest.raises(KeyboardInterrupt):
            optimal_strategy(Prefix(20), neighbouring="add-remove", progress=interrupt)
        assert blas_threads() == {2}


@pytest.mark.parametrize(
    ("workload", "neighbouring", "rows"),
    [
        (Product([Prefix(30), Prefix(40)]), "add-remove", 40),
        (Product([Prefix(30), Prefix(40)]), "replace", 1200),
        (Union([Product([Prefix(30), Prefix(40)])] * 2), "add-remove", 1200),
        (Union([Product([Prefix(90), Prefix(40)])] * 2), "add-remove", 90),
        (Product([Prefix(90), Prefix(50)]), "replace", 90),
    ],
    ids=repr,
)
def test_the_largest_matrix_of_a_search(
    workload: Workload, neighbouring: Neighbouring, rows: int
) -> None:
    assert optimal._largest_matrix(workload, neighbouring) == rows
