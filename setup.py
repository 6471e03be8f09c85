"""Maps the repository's top-level folders to import packages.

Bare names such as ``operators`` or ``pipelines`` collide with what Airflow and Kubeflow users have
on their path, so each folder is installed as ``cachew_<folder>``. setuptools can express that
mapping together with automatic discovery only in code; everything else is in pyproject.toml.
"""

from setuptools import find_packages, setup

FOLDER_OF_PACKAGE = {
    "cachew_core": "cachew_core",
    "cachew_components": "components",
    "cachew_operators": "operators",
    "cachew_pipelines": "pipelines",
    "cachew_manifests": "manifests",
}

setup(
    package_dir=FOLDER_OF_PACKAGE,
    packages=[
        name
        for package, folder in FOLDER_OF_PACKAGE.items()
        for name in (package, *(f"{package}.{child}" for child in find_packages(folder)))
    ],
)
