"""Programs that are right but for a stated probability: graphs of integers, each value in a slot of its own."""
