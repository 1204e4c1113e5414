"""What an agent host starts over stdio: `python -I -S mcp.py --home DIR [--consumer NAME] [--task ID] …`.

Only a door. A script is compiled at every run, a module once: compiling the relay takes half as long as starting the
interpreter. `-I -S` leaves out the folder of the package, so it is added, last, where it can hide nothing.
"""

import sys

sys.path.append(__file__[: -len("/harken/edge/mcp.py")])

from harken.edge.relay import main

main()
