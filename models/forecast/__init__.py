"""Forecasts of a program's time: its work in counts, times the rates of a machine.

work      what the runtime does for some samples, counted on the program
rates     seconds of one of each on a machine under a parameter set; with the work, the forecast
probes    small programs that consist mainly of one kind of work
measure   runs them and solves for the rates
machine   which machine this is
profile   the rates of a machine as JSON, strictly read
cache     those of this machine in the user's cache, and stored ones of others
"""
