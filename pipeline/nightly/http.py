"""HTTP with retries, and errors that tell no address: it may be the secret."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError

RETRIED = (429, 500, 502, 503, 504)


class HttpError(OSError):
    """A request that failed for good. `status` is None where no answer came."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """One server. Requests are tried again after a lost connection, 429 and 5xx, waiting as long as
    the server asks, else `backoff_seconds`, doubled each time, and never longer than 30 s."""

    def __init__(
        self,
        base: str,
        *,
        retries: int,
        backoff_seconds: float,
        timeout_seconds: float,
        ca_file: str | None = None,
        proxies: bool = True,
    ) -> None:
        self._base = base.rstrip("/")
        retry = urllib3.Retry(
            total=retries,
            backoff_factor=backoff_seconds,
            backoff_max=30,
            status_forcelist=RETRIED,
            allowed_methods=None,
            raise_on_status=False,
            redirect=0,
        )
        how: dict[str, Any] = {"retries": retry, "timeout": timeout_seconds}
        if ca_file is not None:
            how["ca_certs"] = ca_file
        proxy = _proxy(self._base) if proxies else None
        self._pool = urllib3.ProxyManager(proxy, **how) if proxy else urllib3.PoolManager(**how)

    def send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        """The answer's body; HttpError unless its status is 2xx."""
        try:
            answer = self._pool.request(
                method, f"{self._base}{path}", body=body, headers=dict(headers)
            )
        except MaxRetryError as error:
            raise HttpError(f"{method}: {error.reason}") from None
        except HTTPError as error:
            raise HttpError(f"{method}: {type(error).__name__}") from None
        if not 200 <= answer.status < 300:
            said = " ".join(answer.data.decode("utf-8", "replace").split())[:300]
            raise HttpError(f"{method}: status {answer.status}: {said}", answer.status)
        return answer.data

    def json(self, method: str, path: str, value: Any, headers: Mapping[str, str]) -> Any:
        """The answer's JSON to a JSON body, none for None; HttpError where it is no JSON."""
        body = None if value is None else json.dumps(value, allow_nan=False).encode()
        typed = {**headers, "Accept": "application/json"}
        if body is not None:
            typed["Content-Type"] = "application/json"
        data = self.send(method, path, body, typed)
        try:
            return json.loads(data)
        except ValueError:
            raise HttpError(f"{method}: the answer is no JSON: {data[:100]!r}") from None


def _proxy(base: str) -> str | None:
    """The proxy that the environment names for an address, as other tools read it."""
    parts = urlsplit(base)
    if parts.hostname is None or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)
