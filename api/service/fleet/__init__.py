"""Several web processes and workers on one database: work as rows, leases, processes that join and leave."""
