"""Pruning: from a trained network to short formulas, and the front of accuracy against complexity."""
