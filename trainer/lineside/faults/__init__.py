"""Fault injection on a real run, from outside of the processes that suffer it; each fault tells its truth."""
