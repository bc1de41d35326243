"""One file for each command, or for the few that belong together; they import what is shared, never one another."""
