"""Tables, migrations and sessions: SQLite in the data folder, or PostgreSQL."""
