"""What a host's hook starts: `python -I -S hook.py --home DIR HOST MOMENT`, with the host's payload on stdin.

Only a door, like `mcp.py`: a script is compiled at every run, a module once.
"""

import sys

sys.path.append(__file__[: -len("/harken/edge/hook.py")])

from harken.edge.ask import main

main()
