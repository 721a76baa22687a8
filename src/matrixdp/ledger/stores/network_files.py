"""File systems that a write-ahead log does not work on."""

from pathlib import Path

from matrixdp.errors import StorageError

__all__ = ["check_local", "file_system"]

# Shared memory and locks of one machine are not seen by another one there.
_NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs"}
    | {"nfs4", "orangefs", "smb3", "smbfs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs"}
)
_MOUNTS = Path("/proc/self/mountinfo")


def check_local(folder: Path) -> None:
    """Raise if a folder is on a network file system, as far as the system tells."""
    if not _MOUNTS.exists():
        return
    kind = file_system(folder.resolve(), _MOUNTS.read_text(encoding="utf-8"))
    if kind in _NETWORK:
        raise StorageError(
            f"{folder} is on a network file system ({kind}), where SQLite loses payments: keep the "
            "ledger on a disk of this machine, or use a PostgreSQL server"
        )


def file_system(folder: Path, mounts: str) -> str:
    r"""Return the kind of the file system of a folder, given the text of ``mountinfo``.

    Examples
    --------
    >>> text = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /data rw - nfs4 host:/x rw\n"
    >>> file_system(Path("/data/study"), text), file_system(Path("/database"), text)
    ('nfs4', 'ext4')
    """
    longest, found = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        # Blanks in names are written as octal numbers.
        name = before.split(" ")[4].encode().decode("unicode_escape")
        mounted = Path(name)
        # The last of two mounts on one folder hides the first.
        if folder.is_relative_to(mounted) and len(mounted.parts) >= longest:
            longest, found = len(mounted.parts), after.split(" ")[0]
    return found
