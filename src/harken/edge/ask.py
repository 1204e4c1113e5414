"""One question to the daemon, on behalf of a hook: the payload goes as it came, the answer is printed as it comes.

It understands neither. On any error (no daemon, no home, no answer in time) it prints nothing and ends with 0: a hook
must never hold up or trouble its host. Once it has printed it says so, because only then did the host get it.
"""

from __future__ import annotations

import _socket
import sys
from select import select

from harken.edge.host_table import HOOK_VARIABLES
from harken.edge.link import dial, quote, variables

if sys.platform == "win32":
    import nt as posix
else:
    import posix

MAX_PAYLOAD, CHUNK = 1 << 20, 1 << 16
SILENT_SECONDS, ANSWER_SECONDS = 0.5, 5.0
PERSON_SECONDS = 24 * 3600.0  # a person is waited for as long as the host lets its hook live


def main() -> None:
    """Ask, print, and end."""
    code = 0
    try:
        code = ask(sys.argv[1:])
    except (OSError, ValueError, IndexError):
        code = 0
    # Taking the interpreter apart properly would take longer than everything before.
    posix._exit(code)


def ask(arguments: list[str]) -> int:
    """Put one question; return the exit code of the hook."""
    option, home, host, moment = arguments[:4]
    if option != "--home" or ("--bell" in arguments and not is_ringing(home, host)):
        return 0
    sock, token = dial(home)
    sock.settimeout(PERSON_SECONDS if moment == "ask" else ANSWER_SECONDS)
    payload = read_input()
    names = HOOK_VARIABLES
    if "--variables" in arguments:  # of a host that is not in the table
        names += " " + arguments[arguments.index("--variables") + 1].replace(",", " ")
    is_in_task = "--in-task" in arguments
    sock.sendall(hello(host, moment, token, len(payload), names, is_in_task=is_in_task) + payload)
    code, out, err = receive(sock)
    write(1, out)
    write(2, err)
    sock.sendall(b"+")
    return code


def is_ringing(home: str, host: str) -> bool:
    """Whether there is anything to ask for: where no shell can look at the bell before this program is started."""
    return posix.stat(f"{home}/run/bells/{host}").st_size > 0


def hello(host: str, moment: str, token: str, size: int, names: str, *, is_in_task: bool = False) -> bytes:
    """Return the line that says who asks."""
    try:
        cwd = posix.getcwd()
    except OSError:
        cwd = ""  # the folder was removed; the agent in it can be reached all the same
    env = ",".join(f"{quote(name)}:{quote(value)}" for name, value in variables(names).items())
    return (
        f'{{"harken":1,"kind":"hook","host":{quote(host)},"moment":{quote(moment)},"payload":{size}'
        f',"in_task":{"true" if is_in_task else "false"}'
        f',"pid":{posix.getpid()},"ppid":{posix.getppid()},"cwd":{quote(cwd)}'
        f',"env":{{{env}}},"token":{quote(token)}}}\n'
    ).encode()


def read_input() -> bytes:
    """Return what the host wrote, at most so much of it; a host that leaves the pipe open is not waited for."""
    data = b""
    while len(data) < MAX_PAYLOAD:
        if sys.platform != "win32" and not select([0], [], [], SILENT_SECONDS)[0]:
            break
        chunk = posix.read(0, min(CHUNK, MAX_PAYLOAD - len(data)))
        if not chunk:
            break
        data += chunk
    return data


def receive(sock: _socket.socket) -> tuple[int, bytes, bytes]:
    """Return the exit code, and what to print where."""
    data = b""
    while b"\n" not in data:
        chunk = sock.recv(CHUNK)
        if not chunk:
            raise ConnectionResetError
        data += chunk
    head, _, data = data.partition(b"\n")
    code, out, err = (int(number) for number in head.split(b" "))
    parts = [data]
    missing = out + err - len(data)
    while missing > 0:
        chunk = sock.recv(CHUNK)
        if not chunk:
            raise ConnectionResetError
        parts.append(chunk)
        missing -= len(chunk)
    data = b"".join(parts)
    return code, data[:out], data[out : out + err]


def write(descriptor: int, data: bytes) -> None:
    """Write everything."""
    while data:
        data = data[posix.write(descriptor, data) :]
