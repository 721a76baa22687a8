"""The noise of a step, and the optimisers that follow the noisy means."""
