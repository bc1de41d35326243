"""The `cloakwork` command line: the only place that puts the client's and the server's halves into one process."""
