"""A lock file as a CycloneDX bill of materials: each version with its licence, its files' hashes, and what needs what."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseAcknowledgement
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from tools.supply_chain.facts import UNREAD, Fact, Facts
from tools.supply_chain.locks import Locked, read_lock

MARKER = "python:environment-marker"
"""The property that says for which interpreters and systems a version is."""

_licences = LicenseFactory()


def bill_of_materials(folder: Path, file_name: str, facts: Facts) -> str:
    """Returns the JSON document (CycloneDX 1.6) of one lock file of a repository.

    Raises:
        ValueError: The document is not as its schema wants it: a defect.
    """
    packages = read_lock(folder / file_name)
    project = _project(folder)
    bom = Bom()
    bom.metadata.component = project
    by_name: dict[str, list[Component]] = defaultdict(list)
    needs: dict[str, list[str]] = defaultdict(list)
    for package in packages:
        component = _component(package, facts.get((package.name, package.version), UNREAD))
        bom.components.add(component)
        by_name[package.name].append(component)
        for other in package.needed_by:
            needs[other].append(package.name)
    for name, components in by_name.items():
        for component in components:
            bom.register_dependency(component, [one for other in needs[name] for one in by_name[other]])
    bom.register_dependency(project, [one for package in packages if package.direct for one in by_name[package.name]])
    document: str = JsonV1Dot6(bom).output_as_string(indent=2)
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(document)
    if error is not None:
        raise ValueError(f"the bill of materials of {file_name} is not valid CycloneDX: {error!r}")
    return document


def _project(folder: Path) -> Component:
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    return Component(
        type=ComponentType.APPLICATION,
        name=project["name"],
        version=project["version"],
        bom_ref=project["name"],
        licenses=[
            _licences.make_from_string(project["license"], license_acknowledgement=LicenseAcknowledgement.DECLARED)
        ],
    )


def _component(package: Locked, fact: Fact) -> Component:
    purl = PackageURL("pypi", name=package.name, version=package.version)
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in package.hashes]
    said = str(fact.licence)
    licence = (
        _licences.make_from_string(said, license_acknowledgement=LicenseAcknowledgement.DECLARED)
        if fact.spdx
        else _licences.make_with_name(said, acknowledgement=LicenseAcknowledgement.DECLARED)
    )
    return Component(
        type=ComponentType.LIBRARY,
        name=package.name,
        version=package.version,
        bom_ref=purl.to_string(),
        purl=purl,
        licenses=[licence],
        # The files that may be installed as this version: a component's own hashes would all have to be of one file.
        external_references=[
            ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(purl.to_string()), hashes=hashes)
        ],
        properties=[Property(name=MARKER, value=package.marker)] if package.marker else [],
    )
