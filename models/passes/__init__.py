"""The passes, one per file, in the order in which the compiler runs them.

quantise_ends        quantisers at input and output are left to the client
leave_functions      so are other functions of single numbers at the output
fold_normalisation   affine look-ups into the linear node before them
fuse_functions       whatever is a function of one wire into one look-up
lower_products       products of several wires into look-ups of squares
fold_affine          affine look-ups that are left into the linear nodes after them
separate_levels      linear and look-up alternate; linear on linear is composed
quantised_ranges     without data: ranges from the model's own quantisers
bound_ranges         the range of every wire, from calibration data and intervals
noise_limits         how much noise every layer may have
integer_rows         weights that are integers already stay what they are
quantise_weights     integer weights, scale and offset of every wire
exact_integers       for the exact profiles: integers and their slots
choose_exact         the cheapest set at which they do not fail
choose_parameters    the cheapest parameter set whose noise fits
"""
