"""`kraftlib sasl-user`: the line of a user for the `users_file` of `[sasl]`."""

from __future__ import annotations

import argparse
import getpass
import sys
from pathlib import Path

from kraftlib.cli.usage import UsageError
from kraftlib.security.sasl import DIGESTS, NAME_MAX
from kraftlib.security.sasl_users import PASSWORD_MAX, read_private, user_line
from kraftlib.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, make_verifier


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Print the line of a user for the users_file of [sasl]: it serves to check the password, and not "
        "to log in. The password is asked for, or read from standard input or a file."
    )
    parser.epilog = (
        "example:\n  (umask 077; openssl rand -base64 32 > replica-1.password)\n"
        "  kraftlib sasl-user replica-1 --password-file replica-1.password >> users"
    )
    parser.add_argument("name", help="name of the user; replica-ID is bound to the replica of that id")
    parser.add_argument("--password-file", type=Path, metavar="FILE", help="file with the password in its first line")
    parser.add_argument("--mechanism", choices=[*DIGESTS], default=next(iter(DIGESTS)), help="default: %(default)s")
    parser.add_argument(
        "--iterations", type=int, default=ITERATIONS_MIN, help="rounds of PBKDF2 (default: %(default)s, as in Kafka)"
    )


def run(options: argparse.Namespace) -> int:
    """Print the line."""
    name = options.name
    if not 0 < len(name) <= NAME_MAX or not name.isprintable() or name.split() != [name] or name.startswith("#"):
        raise UsageError(f"{name!r} is no user name: expected up to {NAME_MAX} characters without spaces")
    if not ITERATIONS_MIN <= options.iterations <= ITERATIONS_MAX:
        raise UsageError(f"--iterations {options.iterations} must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    password = _password(options.password_file)
    if not 0 < len(password) <= PASSWORD_MAX:
        raise UsageError(f"a password has 1 to {PASSWORD_MAX} bytes, and this one has {len(password)}")
    verifier = make_verifier(DIGESTS[options.mechanism], password, iterations=options.iterations)
    print(user_line(name, options.mechanism, verifier))
    return 0


def _password(path: Path | None) -> bytes:
    if path is not None:
        return next(iter(read_private(path)), "").encode()
    text = getpass.getpass("password: ") if sys.stdin.isatty() else sys.stdin.readline()
    return text.strip().encode()
