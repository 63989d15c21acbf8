"""Posteriors and the evidence for them: metrics, calibration, reference samplers."""
