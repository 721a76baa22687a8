"""The grid that both experiments share: runs, their outcomes, and what makes them."""
