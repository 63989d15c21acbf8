"""Laws of motion: differential equations found from time series."""
