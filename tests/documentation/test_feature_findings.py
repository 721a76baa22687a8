"""Every number in the findings of Type II is computed here from the table; none is left over."""

import re
from pathlib import Path
from statistics import fmean

from matrixdp.experiments.private_features.release_table import FeatureRow
from matrixdp.experiments.table_files import read_table
from matrixdp.rounding import shown_up

ROOT = Path(__file__).resolve().parents[2]
ROWS = read_table(ROOT / "results" / "type_two.csv", FeatureRow)
# Digits that are part of a name or of a question, not of an answer.
NAMES = r"Type II|ε = 1, 5 and 10|ε = (0\.1|10|1|5)(?!\d|\.\d)"


def cells(**wanted: str) -> list[FeatureRow]:
    wanted = {"dataset": "imdb", "protocol": "exact", "clip": "public"} | wanted
    return [row for row in ROWS if all(getattr(row, name) == it for name, it in wanted.items())]


def per_cent(**wanted: str) -> str:
    found = [100.0 * float(row.accuracy) for row in cells(**wanted)]
    assert len(found) == 3  # seeds
    return f"{fmean(found):.1f}"


def imgm(network: str, method: str, epsilon: str, clip: str = "public") -> str:
    return per_cent(network=network, method=method, mechanism="imgm", epsilon=epsilon, clip=clip)


def finding(start: str) -> str:
    page = (ROOT / "docs" / "experiments.md").read_text()
    section = page.split("### Findings of Type II")[1].split("\n### ")[0]
    (found,) = [part for part in section.split("\n- ") if part.startswith(start)]
    return " ".join(found.split())


def numbers(start: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?", re.sub(NAMES, "", finding(start)))


def test_the_public_part() -> None:
    alone = f"{100 * fmean(float(row.accuracy) for row in cells_alone()):.1f}"
    moments = [imgm("public", "moments", epsilon) for epsilon in ("1", "5", "10")]
    assert numbers("**The public part") == [alone, imgm("public", "rows", "1"), *moments]
    others = ("rows", "projected", "shrunk", "linear", "corrected")
    best = max(
        float(imgm("public", method, epsilon))
        for method in others
        for epsilon in ("0.1", "1", "5", "10")
    )
    assert best <= float(alone) + 0.1
    assert float(moments[0]) > float(alone)


def cells_alone() -> list[FeatureRow]:
    found = [row for row in ROWS if (row.dataset, row.mechanism) == ("imdb", "public")]
    assert len(found) == 3
    return found


def test_without_a_public_part() -> None:
    expected = [imgm("random", "rows", epsilon) for epsilon in ("1", "10")]
    expected += [imgm("random", "moments", epsilon) for epsilon in ("0.1", "1")]
    assert numbers("**Without a public part") == expected
    assert float(expected[2]) > float(expected[1])


def test_post_processing() -> None:
    methods = ("rows", "projected", "shrunk", "corrected")
    found = [imgm("public", method, "0.1") for method in methods]
    assert numbers("**Free post-processing") == [*found, imgm("public", "shrunk", "10")]
    assert min(found) == found[0]


def test_clipping() -> None:
    found = imgm("public", "rows", "1", clip="tanh")
    assert numbers("**Clipping pays") == [found]
    assert float(found) < float(imgm("public", "rows", "1"))


def test_mechanisms() -> None:
    for row in cells(mechanism="imgm", method="rows"):
        same = {"network": row.network, "epsilon": row.epsilon, "seed": row.seed}
        (other,) = cells(mechanism="analytic", method="rows", **same)
        assert other.run == row.run
    mvg = [row for row in ROWS if (row.dataset, row.mechanism) == ("imdb", "mvg")]
    assert mvg
    assert {f"{100 * float(row.accuracy):.1f}" for row in mvg} == {"50.0"}
    assert numbers("IMGM and the analytic") == ["50.0"]


def test_the_protocol_of_the_paper() -> None:
    paper = cells(protocol="paper", mechanism="imgm", epsilon="1")
    (spent,) = {shown_up(float(row.true_epsilon), 3) for row in paper}
    assert numbers("Under the protocol") == [spent]
