"""The benchmarks: `python -m bench`, or `make bench`.

Each row is measured against a reference in the same interleaved run, because machines differ and are shared: read the
ratios. Each module here measures one part of Harken from the outside, or at the store's contract; nothing in Harken
knows of it. The small scripts (`relay`, `load`, `bare_http`, `sdk_stdio`) run as processes of their own.
"""
