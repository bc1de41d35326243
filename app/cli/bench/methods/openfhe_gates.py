"""OpenFHE's NAND by one of its methods, timed in this process: GINX, AP or LMKCDEY, and how many gates. Prints one JSON object.

Started by peer.py with a Python that has OpenFHE's wheel and nothing of this project.
"""

import json
import statistics
import sys
import time

import openfhe


def main() -> None:
    method, gates = sys.argv[1], int(sys.argv[2])
    context = openfhe.BinFHEContext()
    name = "STD128_LMKCDEY" if method == "LMKCDEY" else "STD128"
    context.GenerateBinFHEContext(getattr(openfhe.BINFHE_PARAMSET, name), getattr(openfhe.BINFHE_METHOD, method))
    secret_key = context.KeyGen()
    context.BTKeyGen(secret_key)
    # OpenFHE refuses a gate whose two inputs are the same object.
    first = {bit: context.Encrypt(secret_key, bit) for bit in (0, 1)}
    second = {bit: context.Encrypt(secret_key, bit) for bit in (0, 1)}
    seconds = []
    wrong = 0
    for i in range(gates):
        a, b = i & 1, (i >> 1) & 1
        start = time.perf_counter()
        result = context.EvalBinGate(openfhe.BINGATE.NAND, first[a], second[b])
        seconds.append(time.perf_counter() - start)
        wrong += context.Decrypt(secret_key, result) != 1 - (a & b)
    record = {
        "median_seconds": statistics.median(seconds),
        "gates": gates,
        "wrong": wrong,
        "lwe_dimension": context.Getn(),
        "ring_dimension": context.GetN(),
    }
    print(json.dumps(record))  # noqa: T201 (what peer.py reads)


if __name__ == "__main__":
    main()
