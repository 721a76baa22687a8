"""``matrixdp ledger create`` and ``status``: accounts, what they promise and what is left."""

from pathlib import Path
from typing import Annotated, cast

import typer

from matrixdp.cli.shared.ledgers import (
    AccountOption,
    KeysOption,
    LedgerOption,
    OptionalAccountOption,
    default_keys,
    opened_ledger,
)
from matrixdp.cli.shared.options import (
    UNIT,
    AsJson,
    BoundedOption,
    DeltaOption,
    EpsilonOption,
    NeighbouringOption,
    count_option,
    number_option,
)
from matrixdp.cli.shared.output import print_json, print_table
from matrixdp.errors import InvalidParameterError
from matrixdp.ledger import Balance, Ledger, Terms
from matrixdp.ledger.explanation import left_in_words, percent
from matrixdp.privacy.events import Bounded, SampledPlan
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.rounding import shown_down

__all__ = ["create", "status"]


def create(
    ledger: LedgerOption,
    account: AccountOption,
    neighbouring: NeighbouringOption,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    unit: Annotated[str, UNIT] = "record",
    records_per_unit: Annotated[
        int, count_option("--records-per-unit", "The most records that one unit has.")
    ] = 1,
    claims_delta: Annotated[
        float,
        number_option(
            "--claims-delta",
            "The part of delta for claims of other software and for plans that are chosen later.",
        ),
    ] = 0.0,
    plan: Annotated[
        list[str] | None,
        typer.Option(
            "--plan",
            metavar="MULTIPLIER,RATE,STEPS",
            help="A training that is certain to come: noise multiplier, sampling rate and number "
            "of steps; repeat for each.",
        ),
    ] = None,
    bounded: BoundedOption = "difference",
    keys: KeysOption = None,
    as_json: AsJson = False,
) -> None:
    """Open an account, whose terms never change; make the ledger and its key file if need be."""
    relation = checked_neighbouring(neighbouring)
    terms = Terms(
        epsilon=epsilon,
        delta=delta,
        neighbouring=relation,
        unit=unit,
        records_per_unit=records_per_unit,
        claims_delta=claims_delta,
        plans=tuple(_plan(text, relation, bounded) for text in plan or []),
    )
    with _opened_or_made(ledger, keys) as book:
        opened = book.open_account(
            account,
            terms.budget,
            neighbouring=relation,
            unit=unit,
            records_per_unit=records_per_unit,
            plans=terms.plans,
            claims_delta=claims_delta,
        )
        fields, left = _fields(opened.path), left_in_words(opened.path)
        address, key_file = book.address, "" if book.keys is None else str(book.keys.path)
    if as_json:
        print_json({"ledger": address, "keys": key_file, **fields})
        return
    typer.echo(f"account {account} of {address} promises {terms.in_words}")
    typer.echo(f"one release may have {left}, or several together as much")
    if key_file:
        typer.echo(f"its key file is {key_file}: keep it apart from backups of the ledger")


def status(
    ledger: LedgerOption,
    account: OptionalAccountOption = None,
    keys: KeysOption = None,
    as_json: AsJson = False,
) -> None:
    """Show accounts: what they promise, how much of it is spent, and what one release may have.

    With --account that account and those below it.
    """
    with opened_ledger(ledger, keys) as book:
        known = {one.name: one for one in book.accounts()}
        waiting = [one.account for one in book.pending()]
        address, identity = book.address, book.identity
    paths = [
        _path(name, known)
        for name in known
        if account is None or name == account or name.startswith(f"{account}/")
    ]
    if account is not None and not paths:
        raise InvalidParameterError(f"account={account!r} does not exist in {address}")
    if as_json:
        shown = [{**_fields(path), "pending": waiting.count(path[0].name)} for path in paths]
        print_json({"ledger": address, "identity": identity, "accounts": shown})
        return
    print_table(
        ["account", "promise", "spent", "one more release", "delta for claims left", "pending"],
        [
            [
                path[0].name,
                path[0].terms.in_words,
                percent(path[0].spent.mu_squared, path[0].limit.mu_squared),
                left_in_words(path),
                shown_down(path[0].remaining_delta) if path[0].limit.delta else "",
                str(waiting.count(path[0].name)),
            ]
            for path in paths
        ],
        title=address,
    )


def _path(name: str, known: dict[str, Balance]) -> list[Balance]:
    above, _, _ = name.rpartition("/")
    return [known[name], *(_path(above, known) if above else [])]


def _fields(path: list[Balance]) -> dict[str, object]:
    account = path[0]
    terms = account.terms
    return {
        "account": account.name,
        "epsilon": terms.epsilon,
        "delta": terms.delta,
        "neighbouring": terms.neighbouring,
        "unit": terms.unit,
        "records_per_unit": terms.records_per_unit,
        "spent_share": account.spent_share,
        "remaining_mu": min(one.remaining_mu for one in path),
        "claims_delta": terms.claims_delta,
        "remaining_claims_delta": min(one.remaining_delta for one in path),
        "plans": [
            {
                "noise_multiplier": plan.noise_multiplier,
                "sampling_rate": plan.sampling_rate,
                "steps": plan.steps,
                "bounded": plan.bounded,
            }
            for plan in terms.plans
        ],
    }


def _opened_or_made(url: str, keys: Path | None) -> Ledger:
    try:
        Ledger.open(url).close()
    except InvalidParameterError:  # there is none
        named = default_keys(url) if keys is None else keys
        if named is None:
            raise InvalidParameterError(
                "pass --keys, the key file to make: it seals the keys of releases until they are "
                "out"
            ) from None
        return Ledger.create(url, keys=named)
    return opened_ledger(url, keys)


def _plan(text: str, relation: Neighbouring, bounded: str) -> SampledPlan:
    parts = text.split(",")
    try:
        multiplier, rate, steps = float(parts[0]), float(parts[1]), int(parts[2])
    except (ValueError, IndexError):
        parts = []
    if len(parts) != 3:
        raise InvalidParameterError(
            f"--plan {text!r} is not MULTIPLIER,RATE,STEPS, such as 1.1,0.01,1000"
        )
    return SampledPlan(
        noise_multiplier=multiplier,
        sampling_rate=rate,
        steps=steps,
        neighbouring=relation,
        bounded=cast("Bounded", bounded),  # which the plan checks
    )
