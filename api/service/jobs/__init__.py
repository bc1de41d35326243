"""The life of a job: accepted, stored, watched, run again, forgotten."""
