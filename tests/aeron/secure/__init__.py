"""A package, so that the drivers that its tests share end with them, and not with the run."""
