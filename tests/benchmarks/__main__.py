"""``make bench``: every benchmark of this folder in a process of its own, each number beside its bar.

``python -m tests.benchmarks [NAME...]`` runs only the named ones. Exit code 1 if a bar was missed.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    known = sorted(file.stem for file in HERE.glob("[!_]*.py"))
    wanted = sys.argv[1:] or known
    if unknown := set(wanted) - set(known):
        print(
            f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}",
            file=sys.stderr,
        )
        return 64
    missed = []
    for name in wanted:
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, str(HERE / f"{name}.py")], check=False).returncode:
            missed.append(name)
    if missed:
        print(f"\nmissed a bar: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
