"""Planners: pure functions from what was measured to what should be running."""
