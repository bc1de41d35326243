"""Tables, the steps that make them, and sessions: SQLite in the data folder, or PostgreSQL."""
