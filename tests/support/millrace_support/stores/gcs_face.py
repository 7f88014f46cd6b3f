"""The XML API of Google Cloud Storage before a server that has its JSON API only.

fake-gcs-server has objects, generations and conditions, but speaks the JSON API, while delta-rs and obstore speak the
XML API. Each request is passed on as its fellow of the other API; conditions are judged by the server behind. It is a
process of its own, for delta-rs lets no other thread of its process run while it waits for an answer.

    python -m millrace_support.stores.gcs_face PORT PORT_BEHIND
"""

from __future__ import annotations

import json
import sys
import uuid
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree.ElementTree import Element, SubElement, tostring

from millrace.addresses import LOOPBACK

CONDITIONS = {
    "x-goog-if-generation-match": "ifGenerationMatch",
    "x-goog-if-generation-not-match": "ifGenerationNotMatch",
}
PASSED_ON = ("Content-Type", "Last-Modified", "ETag", "x-goog-generation", "Content-Range", "Accept-Ranges")


class _Face(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    port_behind = 0
    parts: dict[str, dict[int, bytes]] = {}  # noqa: RUF012  # of all requests, by upload

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Does nothing: nobody reads it."""

    def do_GET(self) -> None:
        """Reads an object, or lists some."""
        bucket, name, query = self._target()
        if name:
            return self._pass_on("GET")
        path = f"/storage/v1/b/{bucket}/o?maxResults=1000&prefix={quote(query.get('prefix', ''), safe='')}"
        path += f"&delimiter={quote(query['delimiter'])}" if "delimiter" in query else ""
        path += f"&pageToken={quote(query['continuation-token'])}" if "continuation-token" in query else ""
        path += f"&startOffset={quote(query['start-after'])}" if "start-after" in query else ""
        status, _, body = self._ask("GET", path)
        return self._answer(status, _listing(json.loads(body)) if status == 200 else body)

    def do_HEAD(self) -> None:
        """Describes an object."""
        self._pass_on("HEAD")

    def do_DELETE(self) -> None:
        """Removes an object."""
        bucket, name, query = self._target()
        if "uploadId" in query:
            self.parts.pop(query["uploadId"], None)
            return self._answer(204, b"")
        status, _, body = self._ask("DELETE", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}")
        return self._answer(status, b"" if status < 300 else body)

    def do_PUT(self) -> None:
        """Writes an object, or a part of one."""
        _, _, query = self._target()
        content = self._content()
        if "uploadId" in query:
            self.parts[query["uploadId"]][int(query["partNumber"])] = content
            return self._answer(200, b"", {"ETag": f'"{uuid.uuid4().hex}"'})
        return self._put(content)

    def do_POST(self) -> None:
        """Begins an upload in parts, or completes one."""
        _, _, query = self._target()
        self._content()
        if "uploads" in query:
            upload = uuid.uuid4().hex
            self.parts[upload] = {}
            return self._answer(200, _xml("InitiateMultipartUploadResult", UploadId=upload))
        parts = self.parts.pop(query["uploadId"])
        return self._put(b"".join(parts[number] for number in sorted(parts)), completes=True)

    def _put(self, content: bytes, *, completes: bool = False) -> None:
        bucket, name, _ = self._target()
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
        path += "".join(
            f"&{theirs}={self.headers[ours]}" for ours, theirs in CONDITIONS.items() if ours in self.headers
        )
        status, _, body = self._ask("POST", path, content)
        if status != 200:
            return self._answer(status, body)
        said = json.loads(body)
        headers = {"ETag": f'"{said["etag"]}"', "x-goog-generation": said["generation"]}
        return self._answer(
            200, _xml("CompleteMultipartUploadResult", ETag=said["etag"]) if completes else b"", headers
        )

    def _pass_on(self, method: str) -> None:
        bucket, name, _ = self._target()
        asked = {key: self.headers[key] for key in ("Range",) if key in self.headers}
        status, answer, body = self._ask(method, f"/{bucket}/{quote(name)}", headers=asked)
        headers = {key: answer.headers[key] for key in PASSED_ON if key in answer.headers}
        headers.setdefault("ETag", f'"{answer.headers.get("x-goog-generation", "")}"')
        length = answer.headers.get("Content-Length") if method == "HEAD" else None
        self._answer(status, body, headers, length)

    def _target(self) -> tuple[str, str, dict[str, str]]:
        """Returns bucket, object and query of the request."""
        split = urlsplit(self.path)
        bucket, _, name = split.path.lstrip("/").partition("/")
        return (
            bucket,
            unquote(name),
            {key: one[0] for key, one in parse_qs(split.query, keep_blank_values=True).items()},
        )

    def _content(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _ask(
        self, method: str, path: str, content: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, HTTPResponse, bytes]:
        connection = HTTPConnection(LOOPBACK, self.port_behind, timeout=60)
        try:
            connection.request(method, path, content, headers or {})
            answer = connection.getresponse()
            return answer.status, answer, answer.read()
        finally:
            connection.close()

    def _answer(
        self, status: int, content: bytes, headers: dict[str, Any] | None = None, length: str | None = None
    ) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, str(value))
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _listing(said: dict[str, Any]) -> bytes:
    root = Element("ListBucketResult")
    for one in said.get("items", []):
        entry = SubElement(root, "Contents")
        fields = {"Key": one["name"], "Size": one["size"], "LastModified": one["updated"], "ETag": f'"{one["etag"]}"'}
        for tag, value in fields.items():
            SubElement(entry, tag).text = str(value)
    for prefix in said.get("prefixes", []):
        SubElement(SubElement(root, "CommonPrefixes"), "Prefix").text = prefix
    if token := said.get("nextPageToken"):
        SubElement(root, "NextContinuationToken").text = token
    return tostring(root)


def _xml(root: str, **fields: str) -> bytes:
    element = Element(root)
    for tag, value in fields.items():
        SubElement(element, tag).text = value
    return tostring(element)


if __name__ == "__main__":
    own, behind = map(int, sys.argv[1:])
    _Face.port_behind = behind
    ThreadingHTTPServer((LOOPBACK, own), _Face).serve_forever()
