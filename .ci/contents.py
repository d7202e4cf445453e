"""Check that the wheel and the sdist hold exactly the files of the checkout, each once and where it is imported from.

Usage: contents.py CHECKOUT WHEEL SDIST WHEEL_BUILT_FROM_SDIST
"""

import stat
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

FOLDERS = {"pregel": "pregel", "channels": "pregel/channels", "checkpoint": "pregel/checkpoint"}  # lies in: imported as
LINKS = {("pregel", "channels"), ("pregel", "checkpoint")}
BESIDE = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO", ".gitignore"}  # in an sdist


def sources(checkout: Path) -> set[str]:
    """List the package's files where they lie, the links not followed."""
    found: set[str] = set()
    for folder in FOLDERS:
        for path in (checkout / folder).rglob("*"):
            name = path.relative_to(checkout)
            if (path.suffix == ".py" or path.name == "py.typed") and name.parts[:2] not in LINKS:
                found.add(name.as_posix())
    return found


def differences(what: str, found: Iterable[str], expected: set[str]) -> list[str]:
    """Say what is missing, unexpected or there twice."""
    names = list(found)
    return [
        *(f"{what}: {name} is missing" for name in sorted(expected - set(names))),
        *(f"{what}: {name} should not be there" for name in sorted(set(names) - expected)),
        *(f"{what}: {name} is there twice" for name in sorted({name for name in names if names.count(name) > 1})),
    ]


def wheel_faults(wheel: Path, expected: set[str]) -> list[str]:
    """Compare a wheel with the files that it should install."""
    with zipfile.ZipFile(wheel) as archive:
        infos = archive.infolist()
    code = [info.filename for info in infos if ".dist-info/" not in info.filename]
    links = [info.filename for info in infos if stat.S_ISLNK(info.external_attr >> 16)]
    licence = any(info.filename.endswith(".dist-info/licenses/LICENSE") for info in infos)
    return [
        *differences(wheel.name, code, expected),
        *(f"{wheel.name}: {name} is a link" for name in links),
        *([] if licence else [f"{wheel.name}: LICENSE is missing"]),
        *([] if "pregel/py.typed" in code else [f"{wheel.name}: pregel/py.typed is missing"]),
    ]


def main() -> int:
    """Print every fault; the exit code says whether there was one."""
    checkout, wheel, sdist, again = map(Path, sys.argv[1:])
    files = sources(checkout)
    installed = {FOLDERS[name.split("/", 1)[0]] + "/" + name.split("/", 1)[1] for name in files}
    with tarfile.open(sdist) as archive:
        members = [member for member in archive.getmembers() if not member.isdir()]
    faults = [
        *wheel_faults(wheel, installed),
        *wheel_faults(again, installed),
        *differences(sdist.name, (member.name.split("/", 1)[1] for member in members), files | BESIDE),
        *(f"{sdist.name}: {member.name} is a link" for member in members if not member.isfile()),
    ]
    print(
        *(faults or [f"{wheel.name}: {len(installed)} files, the same from the checkout and from the sdist"]), sep="\n"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
