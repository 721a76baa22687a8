"""Checks of scikit-learn that private estimators fail, and why."""

__all__ = ["CHECKS_FAILED_BY_NOISE"]

_FRESH = "two fits on the same records have different noise, and no seed can make it the same"
_ACCURACY = "asks for accuracy on so few records that noise at epsilon=1 does not allow it"

CHECKS_FAILED_BY_NOISE = {
    "check_classifier_data_not_an_array": _FRESH,
    "check_fit_idempotent": _FRESH,
    "check_pipeline_consistency": _FRESH,
    "check_regressor_data_not_an_array": _FRESH,
    "check_regressors_int": _FRESH,
    "check_supervised_y_2d": _FRESH,
    "check_transformer_data_not_an_array": _FRESH,
    "check_transformer_general": _FRESH,
    "check_classifiers_train": _ACCURACY,
    "check_regressors_train": _ACCURACY,
}
"""Names of checks and why they fail, for ``check_estimator(..., expected_failed_checks=...)``."""
