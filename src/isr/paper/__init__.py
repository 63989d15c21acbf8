"""The paper's experiments, behind `isr reproduce`.

Each module has a function ``run(out, *, names, seeds, quick, say)``, which returns one row per fit and writes rows,
table and figures to the folder ``out``: ``names`` says which cases, ``quick`` takes a small look with one seed that is
not for the record, and ``say`` is told of every fit.
"""
