import os
import time
from pathlib import Path

import pytest

from stoker_engine.errors import SocketDirectoryError
from stoker_engine.socket_directories import ABANDONED_SECONDS, SocketDirectories


def test_a_directory_is_ours_alone_and_has_eight_hex_digits(tmp_path: Path) -> None:
    directories = SocketDirectories(tmp_path / "root")
    path = directories.create()
    assert path.parent == tmp_path / "root"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o700, 0o700)
    assert len(bytes.fromhex(path.name)) == 4
    directories.remove_all()


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    directories = SocketDirectories(tmp_path / "root")
    (directories.create() / "handshake.sock").touch()
    directories.create()
    directories.remove_all()
    assert list(tmp_path.iterdir()) == []


def test_directories_of_another_supervisor_stay(tmp_path: Path) -> None:
    other, mine = SocketDirectories(tmp_path / "root"), SocketDirectories(tmp_path / "root")
    kept = other.create()
    mine.create()
    mine.remove_all()
    assert list((tmp_path / "root").iterdir()) == [kept]
    other.remove_all()


@pytest.mark.property("P54")
def test_what_a_killed_supervisor_left_is_swept(tmp_path: Path) -> None:
    left = tmp_path / "root" / "0123abcd"
    left.mkdir(parents=True)
    (left / "api.lock").touch()
    directories = SocketDirectories(tmp_path / "root")
    path = directories.create()
    assert list((tmp_path / "root").iterdir()) == [path]
    directories.remove_all()


def test_a_directory_without_its_final_name_is_swept_once_nobody_can_be_making_it(tmp_path: Path) -> None:
    old, young = tmp_path / "root" / "new-0123abcd", tmp_path / "root" / "new-0123abce"
    for path in (old, young):
        path.mkdir(parents=True)
    then = time.time() - ABANDONED_SECONDS - 5
    os.utime(old, (then, then))
    directories = SocketDirectories(tmp_path / "root")
    path = directories.create()
    assert set((tmp_path / "root").iterdir()) == {path, young}
    directories.remove_all()


def test_a_link_in_its_place_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SocketDirectoryError, match=f"socket directory {tmp_path}/root: not a directory; remove it"):
        SocketDirectories(tmp_path / "root").create()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_in_its_place_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "root").touch()
    with pytest.raises(SocketDirectoryError, match=f"socket directory {tmp_path}/root: not a directory; remove it"):
        SocketDirectories(tmp_path / "root").create()


def test_a_directory_that_others_could_enter_is_closed(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir(mode=0o755)
    directories = SocketDirectories(tmp_path / "root")
    directories.create()
    assert (tmp_path / "root").stat().st_mode & 0o777 == 0o700
    directories.remove_all()


def test_a_root_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SocketDirectoryError, match=f"socket directory {tmp_path}/file/root: Not a directory"):
        SocketDirectories(tmp_path / "file" / "root").create()
