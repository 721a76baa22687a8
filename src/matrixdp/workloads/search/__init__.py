"""How the best strategy for a workload is found."""
