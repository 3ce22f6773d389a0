"""Adapters for desktop-env's providers in clouds: AWS, Azure, Aliyun and Volcengine."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from vm_pool.providers.desktop_env.adapter import USUAL_SNAPSHOT, Adapter, Gone, words_of

log = logging.getLogger(__name__)

_ACCOUNT_SECONDS = 5
"""For finding out whose an account is: in some private networks nothing answers."""


class AWS(Adapter):
    """EC2 instances."""

    provider_class, manager_class, takes_region = "AWSProvider", "AWSVMManager", True
    deletes_vms = True

    @property
    def region(self) -> str | None:
        """The option's region, otherwise the environment's."""
        return self.settings.region or os.environ.get("AWS_REGION")

    def snapshot(self) -> str:
        """Returns an AMI; ``init_state`` stands for the AMI that instances are made from."""
        if self.settings.snapshot_name != USUAL_SNAPSHOT:
            return self.settings.snapshot_name
        images: Mapping[Any, Mapping[Any, str]] = self.manager_module.IMAGE_ID_MAP
        try:
            return images[self.region][self.settings.screen]
        except KeyError as error:
            size = "{}x{}".format(*self.settings.screen)
            raise RuntimeError(
                f"OSWorld has no AMI for region {self.region} and screen {size}: name yours with snapshot_name"
            ) from error

    def stop(self, path: str) -> None:
        """Terminates an instance. EC2 soon forgets one that was terminated, and never knows another account's."""
        try:
            super().stop(path)
        except Exception as error:
            answer = getattr(error, "response", None)  # of botocore's ClientError
            if not isinstance(answer, Mapping) or answer.get("Error", {}).get("Code") != "InvalidInstanceID.NotFound":
                raise
            raise Gone(words_of(error)) from error

    def account(self) -> str | None:
        """Returns the account's number, which needs no permission, unlike anything else about an account."""
        hasty = import_module("botocore.config").Config(
            connect_timeout=_ACCOUNT_SECONDS, read_timeout=_ACCOUNT_SECONDS, retries={"total_max_attempts": 1}
        )
        try:
            sts = self.module.boto3.client("sts", region_name=self.region, config=hasty)
            return str(sts.get_caller_identity()["Account"])
        except Exception as error:  # noqa: BLE001 (the border to AWS: a network without a way to this service, for one)
            log.warning("the account is unknown: %s", error)
            return None


class Azure(Adapter):
    """Azure VMs, named ``RESOURCE_GROUP/VM``. Stopping one keeps its disk."""

    provider_class, manager_class, takes_region = "AzureProvider", "AzureVMManager", True
    can_find = False
    revert_before_use = True

    def stop(self, path: str) -> None:
        """Deallocates a VM."""
        try:
            super().stop(path)
        except self.module.ResourceNotFoundError as error:
            raise Gone(words_of(error)) from error

    def account(self) -> str | None:
        """Returns the subscription."""
        return str(self.provider.subscription_id)


class Aliyun(Adapter):
    """Alibaba Cloud's ECS instances."""

    provider_class, manager_class = "AliyunProvider", "AliyunVMManager"
    deletes_vms = True
    has_snapshots = False

    def stop(self, path: str) -> None:
        """Deletes an instance."""
        try:
            super().stop(path)
        except Exception as error:
            if getattr(error, "code", None) != "InvalidInstanceId.NotFound":
                raise
            raise Gone(words_of(error)) from error

    def account(self) -> str | None:
        """Returns a hash of the key and the region, which is the environment's."""
        key = f"{os.environ.get('ALIYUN_ACCESS_KEY_ID')} {self.provider.region}"
        return hashlib.sha256(key.encode()).hexdigest()[:16]


class Volcengine(Adapter):
    """Volcengine's ECS instances."""

    provider_class, manager_class = "VolcengineProvider", "VolcengineVMManager"
    deletes_vms = True
    has_snapshots = False
