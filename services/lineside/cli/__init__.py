"""The ``lineside`` command: a table of commands, each loaded from its room only when it is called, so that
``lineside run`` works where only the agent's packages are installed."""
