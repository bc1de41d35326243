"""OpenFHE's functions for large numbers, STD128 GINX, timed in this process: `openfhe_large.py func|floor|sign|decomp BITS COUNT`.

Runs under Python 3.10, where OpenFHE's wheel installs; prints one JSON object. Started by compare_openfhe.py, which sets OMP_NUM_THREADS.
"""

import json
import random
import statistics
import sys
import time

import openfhe

SMALL_MODULUS_LOG2 = 12  # q of its bootstraps
NOISE_LOG2 = 8  # 2 beta: a unit of the message in ciphertexts of OpenFHE
FLOOR_BITS = 4  # that EvalFloor takes off


def main() -> None:
    kind, bits, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    context = openfhe.BinFHEContext()
    # any function: q of one bootstrap; large precision: Q' with room for the message over the noise
    modulus_log2 = SMALL_MODULUS_LOG2 if kind == "func" else bits + NOISE_LOG2
    context.GenerateBinFHEContext(
        openfhe.BINFHE_PARAMSET.STD128, kind == "func", modulus_log2, 0, openfhe.BINFHE_METHOD.GINX, False
    )
    secret_key = context.KeyGen()
    start = time.perf_counter()
    context.BTKeyGen(secret_key)
    keygen_seconds = time.perf_counter() - start
    space = 1 << bits
    draw = random.Random(bits)
    seconds = []
    wrong = 0
    for _ in range(count):
        message = draw.randrange(space)
        if kind == "func":
            table = context.GenerateLUTviaFunction(lambda m, p: (m * m * m) % p, space)
            ciphertext = context.Encrypt(secret_key, message, openfhe.BINFHE_OUTPUT.FRESH, space)
            start = time.perf_counter()
            result = context.EvalFunc(ciphertext, table)
            seconds.append(time.perf_counter() - start)
            wrong += context.Decrypt(secret_key, result, space) != message**3 % space
            continue
        ciphertext = context.Encrypt(secret_key, message, openfhe.BINFHE_OUTPUT.LARGE_DIM, space, 1 << modulus_log2)
        start = time.perf_counter()
        if kind == "floor":
            result = context.EvalFloor(ciphertext, FLOOR_BITS)
        elif kind == "sign":
            result = context.EvalSign(ciphertext)
        else:
            result = context.EvalDecomp(ciphertext)
        seconds.append(time.perf_counter() - start)
        if kind == "floor":
            wrong += context.Decrypt(secret_key, result, space >> FLOOR_BITS) != message >> FLOOR_BITS
        elif kind == "sign":
            wrong += context.Decrypt(secret_key, result, 2) != message >> (bits - 1)
        else:
            digit_bits = SMALL_MODULUS_LOG2 - NOISE_LOG2
            for place, digit in enumerate(result):
                wrong += context.Decrypt(secret_key, digit, 1 << digit_bits) != (message >> digit_bits * place) % 16
    print(json.dumps({"median_seconds": statistics.median(seconds), "keygen_seconds": keygen_seconds, "wrong": wrong}))


main()
