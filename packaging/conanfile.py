# SPDX-License-Identifier: MIT
"""The Conan package of the headers: conan create packaging (from the root of the repository)."""
import os
import re

from conan import ConanFile
from conan.tools.files import copy, load

HEADERS = ("ignis.h", "ignis_kernels.h", "ignis_models.h", "ignis_collective.h")


class Ignis(ConanFile):
    name = "ignis"
    license = "MIT"
    description = "GPU arrays, CUDA kernels compiled at run time, and gradients, in C headers"
    package_type = "header-library"
    settings = "os"
    no_copy_source = True

    def set_version(self):
        numbers = re.findall(r"^#define IGNIS_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", load(self, self.root("ignis.h")), re.MULTILINE)
        self.version = ".".join(numbers)

    def export_sources(self):
        for name in HEADERS + ("LICENSE",):
            copy(self, name, self.root(), self.export_sources_folder)

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        for name in HEADERS:
            copy(self, name, self.source_folder, os.path.join(self.package_folder, "include"))

    def package_id(self):
        self.info.clear()

    def package_info(self):
        self.cpp_info.bindirs = self.cpp_info.libdirs = []
        if self.settings.get_safe("os") != "Windows":
            self.cpp_info.system_libs = ["m", "dl", "pthread"]

    def root(self, *path):
        return os.path.join(self.recipe_folder, os.pardir, *path)
