"""The reference trainer: a small GPT in PyTorch, data x pipeline parallel, that carries out plans live.

It is real training (gloo between processes, 1F1B, AdamW on real text), small enough for two cores, with the
time of an accelerator emulated. Run it with ``python -m lineside.hybrid --help``.
"""
