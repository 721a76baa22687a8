"""Every option of every command, read from the program itself, so that a new one cannot escape."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from matrixdp.cli.main import _program, main
from matrixdp.cli.shared.commands import ORDER


def commands_of(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the names and the command of everything that can be called."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, *names, name)
        else:
            yield (*names, name), command


def is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")


COMMANDS = dict(commands_of(typer.main.get_command(_program([]))))
OPTIONS = [
    (names, option)
    for names, command in COMMANDS.items()
    for option in command.params
    if is_option(option)
]
REPEATABLE = {
    ("budget", "--weight"),
    ("plan", "--categories"),
    ("plan", "--bins"),
    ("query", "histogram", "--categories"),
    ("query", "histogram", "--bins"),
    ("query", "marginals", "--categories"),
    ("query", "marginals", "--bins"),
    ("query", "groups", "--categories"),
    ("query", "groups", "--bins"),
    ("ledger", "create", "--plan"),
}


def test_the_walk_finds_the_options() -> None:
    assert len(COMMANDS) > 15
    assert len(OPTIONS) > 150
    assert {("release",), ("query", "mean"), ("workload", "answer")} <= COMMANDS.keys()


@pytest.mark.parametrize(
    ("names", "option"), OPTIONS, ids=[" ".join([*names, each.opts[0]]) for names, each in OPTIONS]
)
def test_a_repeated_option_is_an_error(
    names: tuple[str, ...], option: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    name = option.opts[0]
    twice = 2 * [name] if option.is_flag else [name, "1", f"{name}=2"]
    assert main([*names, *twice]) == 2
    error = capsys.readouterr().err
    refused = f"Option '{name}' is given more than once" in error
    assert refused is not option.multiple
    assert error.count("\n") == 1


def test_an_option_has_one_meaning() -> None:
    # Besides whether it is required, which the command decides.
    meanings: dict[str, set[tuple[Any, ...]]] = {}
    for _, option in OPTIONS:
        meaning = (
            option.help,
            option.type_descriptor.annotation,
            option.type_descriptor.parameter_info.parser,
            option.metavar,
            option.is_flag,
            option.nargs,
        )
        meanings.setdefault(option.opts[0], set()).add(meaning)
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}
    assert all(help_text for found in meanings.values() for help_text, *_ in found)
    assert meanings.keys() == set(ORDER)


@pytest.mark.parametrize("names", COMMANDS)
def test_options_are_in_one_order(names: tuple[str, ...]) -> None:
    options = [option.opts[0] for option in COMMANDS[names].params if is_option(option)]
    assert options == [name for name in ORDER if name in options]
    assert len(ORDER) == len(set(ORDER))


def test_the_relation_is_required_where_the_result_depends_on_it() -> None:
    taking = {names: each for names, each in OPTIONS if each.opts[0] == "--neighbouring"}
    # A plan of a query needs it, one of a shape has none.
    assert not taking.pop(("plan",)).required
    assert all(option.required for option in taking.values())
    kinds = {names[0] if names[0] == "query" else " ".join(names) for names in taking}
    workloads = {f"workload {name}" for name in ("optimise", "evaluate", "answer")}
    assert kinds == {"release", "query", "account", "audit run", "ledger create", *workloads}
    assert all(names in taking for names in COMMANDS if names[0] == "query")


def test_what_may_be_repeated() -> None:
    found = {(*names, option.opts[0]) for names, option in OPTIONS if option.multiple}
    assert found == REPEATABLE
    for names, option in OPTIONS:
        if (*names, option.opts[0]) in REPEATABLE:
            assert "repeat" in option.help


def test_a_second_epsilon_spends_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_text("1,2\n3,4\n")
    asked = ["--sensitivity", "1", "--neighbouring", "replace", "--delta", "1e-6"]
    budgets = ["--epsilon", "0.1", "--epsilon", "5"]
    assert main(["release", "in.csv", "out.csv", *asked, *budgets]) == 2
    assert "'--epsilon' is given more than once" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_labels_are_asked_for_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["release", "in.csv", "out.csv", "--header", "--header=public"]) == 2
    assert "'--header' is given more than once" in capsys.readouterr().err


def test_help_and_version_may_be_asked_for_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curve", "--mu", "1", "--mu", "2", "--help", "--help"]) == 0
    assert main(["--version", "--version"]) == 0
    assert capsys.readouterr().err == ""
