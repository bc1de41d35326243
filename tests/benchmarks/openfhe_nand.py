"""OpenFHE's NAND, STD128 GINX, timed in this process. Runs under Python 3.10, where OpenFHE's wheel installs; prints one JSON object.

Started by compare_openfhe.py, which sets OMP_NUM_THREADS.
"""

import json
import statistics
import sys
import time

import openfhe


def main() -> None:
    gates = int(sys.argv[1])
    context = openfhe.BinFHEContext()
    context.GenerateBinFHEContext(openfhe.BINFHE_PARAMSET.STD128, openfhe.BINFHE_METHOD.GINX)
    secret_key = context.KeyGen()
    start = time.perf_counter()
    context.BTKeyGen(secret_key)
    keygen_seconds = time.perf_counter() - start

    bits = {value: context.Encrypt(secret_key, value) for value in (0, 1)}
    # OpenFHE refuses a gate whose two inputs are the same object.
    more_bits = {value: context.Encrypt(secret_key, value) for value in (0, 1)}
    seconds = []
    wrong = 0
    for i in range(gates):
        a, b = i & 1, (i >> 1) & 1
        start = time.perf_counter()
        result = context.EvalBinGate(openfhe.BINGATE.NAND, bits[a], more_bits[b])
        seconds.append(time.perf_counter() - start)
        wrong += context.Decrypt(secret_key, result) != 1 - (a & b)
    print(
        json.dumps(
            {
                "median_seconds": statistics.median(seconds),
                "keygen_seconds": keygen_seconds,
                "gates": gates,
                "wrong": wrong,
            }
        )
    )


main()
