"""Laws first: a law of y given x, a law of x, and the exact posterior that follows from both."""
