"""The model compiler: ONNX to encrypted programs.

`compiler` compile_file, the way in for ONNX · `onnx_import` the front end · `ir` the graph and its specification · `interpreter` the oracle ·
`passes` one rewrite per file · `exact` the exact profiles · `report` what a program costs and risks ·
`forecast` how long it takes · `program` the compiled model · `simulate` it in clear with the noise model · `runtime` it on ciphertexts.
"""
