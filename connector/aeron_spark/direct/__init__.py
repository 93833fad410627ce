"""The direct route: the log in the archives of media drivers that this process can reach."""
