"""Odd words in place of every word of every command: an answer or a named error, never a defect."""

from pathlib import Path

import numpy as np
import pytest

from cli.changed_words import ODD_WORDS
from matrixdp.cli.main import main
from matrixdp.cli.shared.exit_codes import DEFECT

BUDGET = "--epsilon 1 --delta 1e-5"
RELATION = "--neighbouring add-remove"
PROMISE = f"{BUDGET} {RELATION} --force"
WRITTEN = "--names a,b --delimiter ; --decimal , --thousands . --missing NA,? --fill 0"
COMMANDS = [
    f"release in.csv out.csv {PROMISE} --sensitivity 1 --range 10 --threads 1 --delimiter ,",
    f"release in.csv out.csv {PROMISE} --box 1,1",
    f"release in.csv out.csv {PROMISE} --row-bounds 1,1,1",
    f"release h.csv out.csv {PROMISE} --sensitivity 1 --header --index --columns a",
    f"query sum r.csv out.csv {PROMISE} --columns a --norm 1 --clipped-share 0.1",
    f"query sum r.npy out.csv {PROMISE} --columns 0,1 --lower 0 --upper 1,2",
    f"query sum n.csv out.csv {PROMISE} --columns a --norm 9 {WRITTEN}",
    f"query mean r.csv out.csv {PROMISE} --columns a --norm 1",
    f"query covariance r.csv out.csv {PROMISE} --columns a --norm 1 --count 2",
    f"query clipped r.npy out.npy {PROMISE} --columns 0,1 --norm 1",
    f"query histogram r.csv out.csv {PROMISE} --categories b=x,y --bins a=0,1,inf",
    f"workload answer in.csv out.npz {PROMISE} --workload prefix:3*prefix:2",
    f"workload answer r.npy out.npz {PROMISE} --workload marginals:3x3:1 --records",
    "workload optimise --workload prefix:4 --neighbouring replace --output best.npz --force",
    "workload evaluate --workload prefix:4+total:4 --neighbouring replace",
    "workload export old.npz answers.csv --non-negative --integer --force",
    f"budget {BUDGET} --parts 3",
    f"budget {BUDGET} --weight 1 --weight 2",
    "curve --mu 1 --points 5 --from 0 --to 3 --csv curve.csv --force",
    f"plan {BUDGET} --shape 3x3 --entry-error 30 --steps 4",
    f"account --noise-multiplier 1 --sampling-rate 0.01 --steps 10 --delta 1e-5 {RELATION}",
    f"compare --shape 3x3 --sensitivity 1 {BUDGET} --steps 2 --norm-bound 4",
    f"audit claim --noise-scale 5 --sensitivity 1 {BUDGET}",
    f"audit claim --noise-scale 5 --sensitivity 1 --sampling-rate 0.1 --steps 3 {BUDGET}",
    "audit rank-one --shape 1x3 --epsilon 1 --delta 1e-5",
    f"audit run --mechanism imgm --shape 2x2 --sensitivity 1 {BUDGET} {RELATION} --samples 1000",
    "verify old.npz",
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("1,1\n1,1\n1,1\n")
    Path("h.csv").write_text("id,a,b\nx,1,2\ny,3,4\n")
    Path("n.csv").write_text("1.000,5;x\n?;y\n\n")
    Path("r.csv").write_text("a,b\n0.5,x\n0.25,y\n")
    np.save("r.npy", np.ones((4, 2)))
    assert (
        main(f"workload answer in.csv old.npz {PROMISE} --workload prefix:3*prefix:2".split()) == 0
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_itself_works(command: str) -> None:
    assert main(command.split()) == 0


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("command", COMMANDS)
def test_odd_words(command: str) -> None:
    words = command.split()
    found = [
        [*words[:position], odd, *words[position + 1 :]]
        for position in range(1, len(words))
        for odd in ODD_WORDS
        if main([*words[:position], odd, *words[position + 1 :]]) == DEFECT
    ]
    assert [[word[:30] for word in each] for each in found] == []
