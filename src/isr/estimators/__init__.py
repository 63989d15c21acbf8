"""The scikit-learn face: estimators that learn equations."""
