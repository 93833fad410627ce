"""The direct route: the log over the archives of media drivers that this process reaches."""
