"""Minder: finds the faulty machine among many that should look alike (Deng et al., NSDI 2025)."""
