"""Tables by some columns at a time, as something that can be planned."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from matrixdp.cli.commands.workload.measuring import computed_mechanism
from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.planner import ErrorMeasure
from matrixdp.queries import ContingencyTable, Preview
from matrixdp.queries.preview import AnswerRanges
from matrixdp.queries.query import least_budget
from matrixdp.workloads import Strategy, Workload

__all__ = ["PlannedTables"]


@dataclass(frozen=True)
class PlannedTables:
    """The marginals of a table, which are measured together.

    Parameters
    ----------
    table : ContingencyTable
        Of all attributes.
    workload : Workload
        Its marginals.
    """

    table: ContingencyTable
    workload: Workload

    def preview(self, budget: Budget) -> Preview:
        """Return what a release will be like: an error for each count, in one column."""
        mechanism = MatrixMechanism(
            self.workload,
            budget,
            neighbouring=self.table.neighbouring,
            strategy=self._strategy,
        )
        errors = mechanism.standard_errors().reshape(-1, 1)
        return Preview(
            f"tables by some columns at a time, {self.table}",
            mechanism.sensitivity,
            mechanism.guarantee,
            errors,
            AnswerRanges(np.ones_like(errors), of_each_record=True),
        )

    def budget_for(
        self, error: float, measure: ErrorMeasure | str = ErrorMeasure.ENTRY, *, delta: float
    ) -> Budget:
        """Return the least budget with which no count has a larger error."""
        return least_budget(self.preview(Budget.from_mu(1.0, delta)), error, measure, delta)

    @cached_property
    def _strategy(self) -> Strategy:
        # The best one is the same for every budget.
        any_budget = Budget.from_mu(1.0, 0.5)
        return computed_mechanism(self.workload, any_budget, self.table.neighbouring).strategy
