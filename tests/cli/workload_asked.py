"""Options of ``matrixdp workload`` that several tests pass."""

__all__ = ["BUDGET", "PREFIX"]

PREFIX = ["--workload", "prefix:16", "--neighbouring", "add-remove"]
BUDGET = ["--epsilon", "1", "--delta", "1e-5"]
