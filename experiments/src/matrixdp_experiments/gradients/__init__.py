"""Type I of the paper: models that are trained on private gradients."""
