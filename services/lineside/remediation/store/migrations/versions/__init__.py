"""One file per version of the tables, oldest first; a released one is never edited."""
