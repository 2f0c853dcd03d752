"""The build step that pyproject.toml cannot describe: `scenarios/` is copied into the package."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithScenarios(build_py):
    """Copies the scenarios after the modules; an editable installation uses `scenarios/` itself."""

    def run(self) -> None:
        """Build the modules, then copy the scenarios."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "rdpfl_sim", "bundled_scenarios")
            shutil.rmtree(target, ignore_errors=True)  # of an earlier build
            shutil.copytree("scenarios", target)


setup(cmdclass={"build_py": BuildWithScenarios})
