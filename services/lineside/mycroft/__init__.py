"""Mycroft: finds who holds up a collective and why, from each rank's progress (Deng et al., SOSP 2025)."""
