"""What happens to a job: accepted, stored, watched, run again, forgotten."""
