"""The search for laws: formulas of one column in others, by linear algebra and least squares."""

from isr.search.candidates import Candidate
from isr.search.find import FUNCTIONS, Found, find_laws

__all__ = ["FUNCTIONS", "Candidate", "Found", "find_laws"]
