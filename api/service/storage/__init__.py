"""Storage: objects in files or in object storage, free disk space, the data folder and its permissions."""
