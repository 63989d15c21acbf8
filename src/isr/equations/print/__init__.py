"""Equations to look at: text, LaTeX, MathML and the listings of a page."""
