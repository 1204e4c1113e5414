"""What an agent host starts over stdio: `python -I -S mcp.py --home DIR [--consumer NAME] [--task ID] …`.

With `--url URL --token-file FILE` it serves from a Harken elsewhere, and needs none here.

Only a door. A script is compiled at every run, a module once: compiling the relay takes half as long as starting the
interpreter. `-I -S` leaves out the folder of the package, so it is added, last, where it can hide nothing.
"""

import sys

sys.path.append(__file__[: -len("/harken/edge/mcp.py")])

if "--url" in sys.argv:
    from harken.edge.bridge import main as serve_from_elsewhere

    serve_from_elsewhere(sys.argv[1:])
else:
    from harken.edge.relay import main

    main()
