"""A package, so that the drivers that its tests share end after its tests, and not after the run."""
