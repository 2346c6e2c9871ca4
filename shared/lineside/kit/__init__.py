"""Settings, logging, metrics, child processes: the only room that all others may use, and that uses none."""
