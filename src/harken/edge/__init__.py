"""The programs that agent hosts start: standard library only, and quick to start.

They are run by path with `python -I -S`, so they import nothing of the package, not even each other, and nothing
of the package imports them. They know where the daemon is and relay; everything else is the daemon's.
"""
