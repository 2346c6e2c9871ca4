"""FALCON: which rank makes a synchronous training run slow (arXiv 2410.12588, section 4).

Pure core (``detector`` composes it): ``assembly`` puts the machines' rows together step by step,
``profile`` compares every rank's own compute per micro-batch with its peers, ``changepoint`` and
``verification`` say when that changed and whether to believe it, ``tracking`` follows each slow rank to its
relief, ``health`` says how the job as a whole is doing. ``processor`` is the shell.
"""
