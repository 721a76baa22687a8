"""``matrixdp workload``: the best way to answer linear queries, its error, and the answers."""

from matrixdp.cli.commands.workload import answer, evaluate, export
from matrixdp.cli.shared.commands import command_group

__all__ = ["app"]

app = command_group("Linear queries on a histogram: optimise, evaluate, answer, export.")
app.command()(evaluate.optimise)
app.command()(evaluate.evaluate)
app.command()(answer.answer)
app.command()(export.export)
