"""Where bytes lie: objects in files or in object storage, room on the disk, the data folder and who may read it."""
