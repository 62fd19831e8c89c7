"""RayJobs by the Kubernetes API server's REST: made, and looked at.

Two calls need no client library of a hundred modules. The service account's token is read anew for
every request, since it is replaced while a pod lives.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.loading import ConfigError
from pipeline.nightly.http import Client, HttpError

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
RETRIES, TIMEOUT_SECONDS = 8, 30.0
_CONFLICT, _NOT_FOUND = 409, 404


def server_of(environment: Mapping[str, str]) -> str:
    """The API server's address inside a cluster; ConfigError outside of one."""
    host, port = environment.get(HOST), environment.get(PORT, "443")
    if not host:
        raise ConfigError(f"{HOST} is not set: no pod of a cluster; give --server=URL")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


class RayJobs:
    """The RayJobs of a namespace. `account` is the folder of a service account, its token and CA
    where they are there: `kubectl proxy` asks for none."""

    def __init__(
        self, server: str, account: Path, namespace: str, *, backoff_seconds: float = 1.0
    ) -> None:
        ca = account / "ca.crt"
        self._client = Client(
            server,
            retries=RETRIES,
            backoff_seconds=backoff_seconds,
            timeout_seconds=TIMEOUT_SECONDS,
            ca_file=str(ca) if ca.is_file() else None,
            proxies=False,
        )
        self._token = account / "token"
        self._path = f"/apis/ray.io/v1/namespaces/{namespace}/rayjobs"

    def create(self, manifest: Mapping[str, Any]) -> bool:
        """Makes a RayJob; False where one of its name is there. HttpError where it is refused."""
        try:
            self._client.json("POST", self._path, manifest, self._headers())
        except HttpError as error:
            if error.status == _CONFLICT:
                return False
            raise
        return True

    def read(self, name: str) -> dict[str, Any] | None:
        """A RayJob as it stands; None where there is none."""
        try:
            found = self._client.json("GET", f"{self._path}/{name}", None, self._headers())
        except HttpError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return dict(found)

    def _headers(self) -> dict[str, str]:
        if not self._token.is_file():
            return {}
        return {"Authorization": f"Bearer {self._token.read_text().strip()}"}
