"""Answers that their owner can make again: the audit key, the file of an audit, and its replay."""
