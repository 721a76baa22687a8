"""``matrixdp audit``: what noise really guarantees, by exact curves and from samples."""

from matrixdp.cli.commands.audit import claims, run
from matrixdp.cli.shared.commands import command_group

__all__ = ["app"]

app = command_group("Audit claims and mechanisms.")
app.command()(claims.claim)
app.command()(claims.rank_one)
app.command()(run.run)
