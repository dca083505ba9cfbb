import os
import socket
import stat
from pathlib import Path

import pytest

from stoker_engine.addresses import SocketAddresses
from stoker_engine.errors import ConfigError, SocketDirectoryError
from stoker_engine.frontend.socket_directory import SocketDirectory, private_umask


def bind(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    return server


def test_a_stale_socket_is_removed(socket_dir: str) -> None:
    addresses = SocketAddresses(socket_dir)
    bind(addresses.input_path).close()
    SocketDirectory(addresses)
    assert not addresses.input_path.exists()


@pytest.mark.parametrize("kind", ["file", "directory", "symlink"])
def test_what_is_not_a_socket_is_left_alone_and_named(socket_dir: str, kind: str) -> None:
    addresses = SocketAddresses(socket_dir)
    match kind:
        case "file":
            addresses.output_path.write_text("precious")
        case "directory":
            addresses.output_path.mkdir()
        case "symlink":
            addresses.output_path.symlink_to("/etc/hostname")
    with pytest.raises(SocketDirectoryError, match=rf"{addresses.output_path} is not a socket"):
        SocketDirectory(addresses)
    assert os.path.lexists(addresses.output_path)


def test_a_second_api_is_refused_with_the_pid_of_the_first_until_it_releases(socket_dir: str) -> None:
    addresses = SocketAddresses(socket_dir)
    first = SocketDirectory(addresses)
    with pytest.raises(SocketDirectoryError, match=f"held by another api, pid {os.getpid()}"):
        SocketDirectory(addresses)
    first.release()
    SocketDirectory(addresses).release()


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SocketDirectoryError, match="No such file or directory"):
        SocketDirectory(SocketAddresses("/tmp/stoker-not-there"))


def test_a_path_too_long_for_a_socket_is_refused_with_its_length() -> None:
    with pytest.raises(ConfigError, match="socket paths may have 80 bytes"):
        SocketAddresses("/tmp/" + "x" * 70)


def test_sockets_bound_under_the_private_umask_are_for_their_owner_alone(socket_dir: str) -> None:
    path = Path(socket_dir, "s.sock")
    with private_umask():
        server = bind(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    server.close()


@pytest.mark.parametrize("replace", [False, True])
def test_a_socket_that_was_deleted_or_replaced_is_noticed(socket_dir: str, replace: bool) -> None:  # noqa: FBT001
    addresses = SocketAddresses(socket_dir)
    directory = SocketDirectory(addresses)
    servers = [bind(path) for path in addresses.paths]
    directory.remember()
    directory.check()
    addresses.input_path.rename(addresses.input_path.with_suffix(".moved"))
    if replace:
        servers.append(bind(addresses.input_path))
    with pytest.raises(SocketDirectoryError, match=r"input\.sock was deleted or replaced"):
        directory.check()
    for server in servers:
        server.close()
