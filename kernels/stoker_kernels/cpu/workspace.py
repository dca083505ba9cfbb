"""The activations of a model's steps, in memory of the library's own."""

import ctypes
import weakref


class Workspace:
    """Grows to the largest step so far; freed with this object."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.pointer: int = library.stoker_new_workspace()
        # Not at exit: a thread may still compute in it.
        weakref.finalize(self, library.stoker_delete_workspace, self.pointer).atexit = False
