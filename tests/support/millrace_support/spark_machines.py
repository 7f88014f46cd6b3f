"""Machines for Spark's workers: they share the store with the driver, and nothing else.

    machines = [Machine(tmp_path / "one", 0, shared=[store], mounts={ENVIRONMENT: unpacked}), …]
    with SparkCluster(tmp_path / "cluster", machines=machines) as cluster: …

A machine is a folder that its programs have as `/` (chroot), with mounts and a host name of its own (`unshare`), and a
user of its own. They see the system's programs, Java and Spark under other paths, a home and a temporary folder of
their own, and the folders that are shared. They see neither this clone nor its Python, and nothing of this process's
environment: their Python is one that `pack_environment` has packed, at ENVIRONMENT or brought by Spark.

    /usr, /dev, /proc    the system's
    /opt/spark           PySpark's Spark        /opt/java    Java
    /home/sparkN, /tmp   its own                /work        the folder of its worker
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from millrace.addresses import LOOPBACK
from millrace.java import java_home_for_spark

GROUP = 61000
ENVIRONMENT = "/opt/millrace"
BARE = "/opt/bare"
SPARK = "/opt/spark"
JAVA = "/opt/java"
WORK = "/work"
SYSTEM = {"/usr": Path("/usr"), "/dev": Path("/dev"), "/proc": Path("/proc")}
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
OF_ETC = ("ld.so.cache", "java-17-openjdk", "ssl")
SHARED_MODE = 0o2775
# Mounts what pairs of arguments name (source, path on the machine), and becomes the command, as the user.
ENTER = f"""set -e
root=$1; user=$3; hostname "$2"; shift 3
while [ "$1" != -- ]; do mount --rbind "$1" "$root$2"; shift 2; done
shift; umask 002
exec chroot --userspec="$user:{GROUP}" "$root" "$@"
"""


def may_have_machines() -> bool:
    """Returns whether this process may mount, and give programs another root and another user."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    tried = ["unshare", "--mount", "--uts", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(tried, check=False, capture_output=True).returncode == 0


def shared_folder(path: Path) -> Path:
    """Makes a folder that the users of all machines write to: what is made in it is their common group's."""
    path.mkdir(parents=True)
    os.chown(path, -1, GROUP)
    path.chmod(SHARED_MODE)
    return path


def without_millrace(environment: Path, bare: Path) -> Path:
    """Makes a Python of links to what machines have at ENVIRONMENT, without Millrace's packages; for BARE."""
    [packages] = (one.relative_to(environment) for one in environment.glob("lib/python*/site-packages"))
    (bare / packages).mkdir(parents=True)
    shutil.copytree(environment / "bin", bare / "bin")  # an interpreter looks for packages beside what a link leads to
    for folder in (packages.parents[1], packages.parent, packages):
        for one in (environment / folder).iterdir():
            if not one.name.startswith("millrace") and not (bare / folder / one.name).exists():
                (bare / folder / one.name).symlink_to(Path(ENVIRONMENT, folder, one.name))
    return bare


class Machine:
    """A folder as the root of a machine, whose programs are started by the words that `command` returns.

    Args:
        root: The folder, which is made.
        number: Gives the machine its name, `worker-N`, and its user.
        shared: Folders that it has under the paths under which this process has them.
        mounts: What else it has, by its paths.
        environment: Variables of its programs.
    """

    def __init__(
        self,
        root: Path,
        number: int,
        *,
        shared: Sequence[Path] = (),
        mounts: Mapping[str, Path] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self.name = f"worker-{number}"
        self.address = f"127.0.0.{1 + number}"  # Spark doubles no task on the host that has it
        self._user = GROUP + 1 + number
        self._environment = {
            "HOME": f"/home/spark{number}",
            "PATH": "/usr/bin:/bin",
            "JAVA_HOME": JAVA,
            "SPARK_HOME": SPARK,
            "SPARK_LOCAL_IP": self.address,
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            **(environment or {}),
        }
        spark = {SPARK: Path(pyspark.__file__).parent, JAVA: java_home_for_spark()}
        self._mounts = {**SYSTEM, **spark, **{str(one): one for one in shared}, **(mounts or {})}
        self._make_root()

    def command(self, *words: str) -> list[str]:
        """Returns the command that runs another one on this machine."""
        mounts = [word for at, path in self._mounts.items() for word in (str(path), at)]
        variables = [f"{name}={value}" for name, value in self._environment.items()]
        enter = ["unshare", "--mount", "--uts", "sh", "-c", ENTER, "sh", str(self.root), self.name, str(self._user)]
        return [*enter, *mounts, "--", "env", "-i", *variables, *words]

    def _make_root(self) -> None:
        for at in self._mounts:
            Path(f"{self.root}{at}").mkdir(parents=True)
        for name, to in LINKS.items():
            (self.root / name).symlink_to(to)
        etc, home = self.root / "etc", self._environment["HOME"]
        etc.mkdir()
        (etc / "passwd").write_text(f"spark:x:{self._user}:{GROUP}::{home}:/bin/sh\n")
        (etc / "group").write_text(f"lake:x:{GROUP}:\n")
        (etc / "hosts").write_text(f"{LOOPBACK} localhost\n{self.address} {self.name}\n")
        for found in (Path("/etc", name) for name in OF_ETC):
            if found.is_dir():
                shutil.copytree(found, etc / found.name, ignore_dangling_symlinks=True)
            elif found.exists():
                shutil.copy(found, etc / found.name)
        for own in (home, "/tmp", WORK):  # noqa: S108  the machine's own
            Path(f"{self.root}{own}").mkdir(parents=True, exist_ok=True)
            os.chown(f"{self.root}{own}", self._user, GROUP)
