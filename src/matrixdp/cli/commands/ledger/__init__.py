"""``matrixdp ledger``: budgets that survive, as people and programs see and keep them."""

from matrixdp.cli.commands.ledger import accounts, history, keeping
from matrixdp.cli.shared.commands import command_group

__all__ = ["app"]

app = command_group("Budgets in a database: open accounts, see what was spent, finish, verify.")
app.command()(accounts.create)
app.command()(accounts.status)
app.command()(history.history)
app.command()(history.explain)
app.command()(keeping.pending)
app.command()(keeping.finish)
app.command()(keeping.forfeit)
app.command()(keeping.verify)
app.command()(keeping.rotate)
