"""Where Harken lives on disk and what it was told to do.

`folder.py` finds the folder, `home.py` is its layout, `settings.py` declares every setting once, `load.py` reads them
(flag, then environment, then file, then default), `values.py` and `tables.py` know what a value and a table may be,
`secrets.py` resolves references. Nothing here opens the store or talks to a network. Above: the daemon and the command
line; below: `ingest`, for the types of routes and attention rules.
"""
