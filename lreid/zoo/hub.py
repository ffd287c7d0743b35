"""Upload an entry of the zoo to Hugging Face's hub: weights, card, and a page."""

import re
import tempfile
from pathlib import Path
from typing import Any

import yaml

from lreid.errors import InputError, short_reason
from lreid.utils.extras import Extra
from lreid.zoo.card import Card
from lreid.zoo.catalogue import hub_text

REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
LICENCES = ("mit", "apache-2.0", "bsd-3-clause", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0")  # on the hub


def hub_of(repository: str) -> Any:
    """Return a client of Hugging Face's hub with write access.

    Args:
        repository: ``OWNER/NAME``.

    Raises:
        InputError: the name is invalid, huggingface_hub is not installed, or there is no token.
    """
    if not REPOSITORY.fullmatch(repository):
        raise InputError(f"--hub {repository}: is not the name of a repository; write OWNER/NAME")
    hub = Extra("huggingface_hub", "hub").load()
    if not hub.get_token():
        raise InputError(f"--hub {repository}: there is no token for the hub; run hf auth login, or set HF_TOKEN")
    return hub.HfApi()


def upload(card: Card, repository: str, hub: Any) -> str:
    """Upload an entry in one commit, which replaces an earlier version; users load it as ``hub:OWNER/NAME``.

    Args:
        card: card of the entry; the weights are next to it.
        repository: ``OWNER/NAME``, which is created if it does not exist.
        hub: result of :func:`hub_of`.

    Returns:
        Address of the commit.

    Raises:
        InputError: the hub refuses the entry, or cannot be reached.
    """
    files = ["README.md", card.file.name, card.weights.name]
    try:
        hub.create_repo(repository, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:  # the entry's folder may have a README.md of the user
            Path(folder, "README.md").write_text(page(card, repository), encoding="utf-8")
            for file in (card.file, card.weights):
                Path(folder, file.name).symlink_to(file.absolute())
            commit = hub.upload_folder(
                repo_id=repository,
                folder_path=Path(folder),
                allow_patterns=files,
                delete_patterns=[f"{card.name}-{'[0-9a-f]' * 12}.safetensors"],  # not people-small for people
                commit_message=f"{card.name}, lreid {card.version}",
            )
    except Exception as error:  # the hub's client raises many kinds for network, name and permission errors
        raise InputError(
            f"--hub {repository}: the entry cannot be uploaded ({short_reason(error)}); it is stored in "
            f"{card.file.parent}"
        ) from None
    return str(commit.commit_url)


def page(card: Card, repository: str) -> str:
    """Write the page of a repository: front matter for the hub, then the content of the card."""
    licence = card.licence.lower()
    other = {} if licence in LICENCES else {"license": "other", "license_name": licence}
    front: dict[str, Any] = {"license": licence} | other
    front |= {
        "library_name": "lreid",
        "pipeline_tag": "image-feature-extraction",
        "tags": ["re-identification", "lifelong-learning", card.method],
    }
    matter = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    return f"---\n{matter}---\n\n{hub_text(card, repository)}"
