"""The parts of a session on evaluation keys: keys, tables, checks of arguments, several devices."""
