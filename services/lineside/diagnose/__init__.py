"""Files that people have kept, fed to the same pure cores that watch live runs."""
