"""Short tests to read first, in order: each shows one idea of Harken through its public seams."""
