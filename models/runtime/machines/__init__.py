"""Machines that execute a schedule (models/graph/schedule.py), a file for each kind of machine; another kind is one file more.

machine      the protocol, and the loop that walks a schedule
clear        real numbers: the oracle of the compiler, for graphs in the making too
noisy        phases with the noise of the noise model, and the engine's tables
host         ciphertexts in host memory
device       ciphertexts on GPUs, a machine for each
"""
