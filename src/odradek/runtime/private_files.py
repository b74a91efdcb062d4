"""Open files that only this user can access, so that no other user can have replaced them.

In: a path from an option or environment variable. Out: a file descriptor, or `UnsafeFileError` with
the reason; a warning if other users can read a key file. R-IN-5: symbolic links aren't followed,
and opening a pipe doesn't block; owner and mode are checked on the open file, not on its name. Must
not: change the mode of an existing file.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

logger = logging.getLogger("odradek")

_BASE = os.O_WRONLY | os.O_APPEND | os.O_CREAT
# Without O_NONBLOCK, a pipe without a reader would block forever.
_FLAGS = _BASE | sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_told: set[object] = set()
"""Key files for which this process has logged a warning, by path and inode.

There is one warning per file, even if several clients read it by several names.
"""


def home_directory() -> Path:
    """Return the user's home directory; "/" if there is none, as container runtimes do."""
    try:
        return Path.home()
    except RuntimeError:  # no $HOME, and no such user in the system
        return Path("/")


class UnsafeFileError(OSError):
    """Other users can access a file, or the file isn't a regular file."""


def append_privately(path: str | os.PathLike[str]) -> int:
    """Open a file for appending; create it with mode 0600 if it doesn't exist.

    Raises `UnsafeFileError` if it is a symbolic link, isn't a regular file, has further hard links,
    or if other users own it or can access it; `OSError` if it can't be opened.
    """
    try:
        descriptor = os.open(path, _FLAGS, 0o600)
    except OSError as error:
        if Path(path).is_symlink():
            raise UnsafeFileError(f"{path} is a symbolic link") from None
        if Path(path).is_fifo():
            raise UnsafeFileError(f"{path} isn't a regular file") from None
        raise error from None
    try:
        found = os.fstat(descriptor)
        wrong = "isn't a regular file" if not stat.S_ISREG(found.st_mode) else _shared(found)
        if wrong:
            raise UnsafeFileError(f"{path} {wrong}")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _shared(found: os.stat_result) -> str:
    """Return why a file isn't private to this user; an empty text if it is private."""
    if os.name != "posix":
        return ""
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    if found.st_nlink > 1:
        return "has a second hard link: choose a path that doesn't exist"
    if found.st_mode & _OTHERS:
        return (
            "exists already and other users have access to it: run chmod 600, or choose a path "
            "that doesn't exist"
        )
    return ""


def write_privately(path: Path, text: str) -> None:
    """Write a file that only this user can read, as it may contain passwords."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)


def warn_of_readers(option: str, path: str | os.PathLike[str]) -> None:
    """Warn, once per file, if other users can read a file with a private key."""
    name = os.fspath(path)
    if os.name != "posix":
        return
    try:
        found = Path(name).stat()
    except OSError:
        return  # reading the file reports the error
    mode, same = found.st_mode, {name, (found.st_dev, found.st_ino)}
    if not same.isdisjoint(_told):
        return
    who = [who for who, bit in (("its group", stat.S_IRGRP), ("everybody", stat.S_IROTH))
           if mode & bit]  # fmt: skip
    if who:
        _told.update(same)
        logger.warning(
            "%s: %s contains a private key, but %s can read it (mode %o): run chmod 600",
            *(option, name, who[-1], stat.S_IMODE(mode)),
        )


def trusted_directory(path: Path) -> str:
    """Return why other users can replace files in a directory; an empty text if they can't."""
    if os.name != "posix":
        return ""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return f"{path} is a symbolic link"
    if found.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to another user (uid {found.st_uid})"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users can write to {path} (mode {stat.S_IMODE(found.st_mode):o})"
    return ""
