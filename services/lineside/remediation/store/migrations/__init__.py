"""Alembic's scripts, inside the package so that an installed program can bring its database up to date."""
