"""The paper's experiments, run again: each writes its rows as JSON, its tables and its figures."""
