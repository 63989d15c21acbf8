"""Closed forms of densities found from rows: marginals, mixtures and charts; no training, only bijections below it."""
