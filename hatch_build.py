"""The build hook: compiles the C++ ops into the wheel, or beside the sources of an editable install."""

import sysconfig
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILD_PROGRAM = "kernels/stoker_kernels/cpu/build.py"


class CppOpsHook(BuildHookInterface[Any]):
    """Without a compiler that can, or a place for them, the package is built without: the engine then says at start that it runs torch's slower ops."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        program = _load(Path(self.root, BUILD_PROGRAM))
        try:
            libraries = program.build()
        except (program.CompilerMissingError, OSError) as error:
            self.app.display_warning(f"the C++ ops are left out: {error}")
            return
        if version != "editable":
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
            build_data["force_include"].update({str(path): str(Path("stoker_kernels", "cpu", "lib", path.name)) for path in libraries})


def _load(path: Path) -> ModuleType:
    # Not imported by its name: the package around it imports torch, which a build has not.
    spec = spec_from_file_location("build_cpp_ops", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
