"""A small Hugging Face hub: repositories in memory, by the protocol that its client speaks."""

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub:
    """An address, what is stored, and every request that came; `with Hub() as hub`."""

    def __init__(self):
        self.files = {}  # repository -> name -> bytes
        self.large = {}  # by their hash
        self.asked = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def body(self):
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))

            def answer(self, content=b"", status=200, **headers):
                if not isinstance(content, bytes):
                    content = json.dumps(content).encode()
                    headers["Content-Type"] = "application/json"
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                if "Content_Length" not in headers:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def do_POST(self):
                hub.asked.append(f"POST {self.path}")
                if not self.headers.get("Authorization"):
                    return self.answer({"error": "log in"}, 401)
                body = self.body()
                if self.path == "/api/repos/create":
                    name = f"me/{json.loads(body)['name']}"
                    hub.files.setdefault(name, {})
                    return self.answer({"url": f"{hub.address}/{name}", "id": name})
                if self.path == "/api/validate-yaml":
                    return self.answer({"errors": [], "warnings": []})
                if found := re.match(r"/api/models/(.+)/preupload/main", self.path):
                    files = [
                        {
                            "path": one["path"],
                            "uploadMode": "lfs"
                            if one["path"].endswith(".safetensors")
                            else "regular",
                            "shouldIgnore": False,
                        }
                        for one in json.loads(body)["files"]
                    ]
                    return self.answer({"files": files})
                if self.path.endswith("/info/lfs/objects/batch"):
                    objects = [
                        {**one, "actions": {"upload": {"href": f"{hub.address}/lfs/{one['oid']}"}}}
                        for one in json.loads(body)["objects"]
                    ]
                    return self.answer({"transfer": "basic", "objects": objects})
                if found := re.match(r"/api/models/(.+)/commit/main", self.path):
                    files = hub.files[found[1]]
                    for line in body.splitlines():
                        entry = json.loads(line)
                        value = entry["value"]
                        if entry["key"] == "file":
                            files[value["path"]] = base64.b64decode(value["content"])
                        if entry["key"] == "lfsFile":
                            files[value["path"]] = hub.large[value["oid"]]
                    sha = hub.sha(found[1])
                    url = f"{hub.address}/{found[1]}/commit/{sha}"
                    return self.answer({"commitUrl": url, "commitOid": sha, "success": True})
                return self.answer({"error": self.path}, 404)

            def do_PUT(self):
                hub.asked.append(f"PUT {self.path}")
                content = self.body()
                oid = self.path.rpartition("/")[2]
                assert hashlib.sha256(content).hexdigest() == oid
                hub.large[oid] = content
                self.answer()

            def do_GET(self):
                hub.asked.append(f"{self.command} {self.path}")
                found = re.match(
                    r"/api/models/([\w.-]+/[\w.-]+)(/revision/\w+)?(\?.*)?$", self.path
                )
                if found and found[1] in hub.files:
                    names = [{"rfilename": name} for name in hub.files[found[1]]]
                    sha = hub.sha(found[1])
                    return self.answer({"id": found[1], "sha": sha, "siblings": names})
                found = re.match(r"/api/models/([\w.-]+/[\w.-]+)/tree/", self.path)
                if found and found[1] in hub.files:
                    files = hub.files[found[1]].items()
                    return self.answer(
                        [
                            {"type": "file", "path": n, "size": len(c), "oid": hub.etag(c)}
                            for n, c in files
                        ]
                    )
                found = re.match(r"/([\w.-]+/[\w.-]+)/resolve/\w+/(.+)$", self.path)
                if found and found[2] in hub.files.get(found[1], {}):
                    content = hub.files[found[1]][found[2]]
                    return self.answer(
                        content,
                        ETag=f'"{hub.etag(content)}"',
                        X_Repo_Commit=hub.sha(found[1]),
                        Content_Length=str(len(content)),
                    )
                return self.answer({"error": "not found"}, 404, X_Error_Code="RepoNotFound")

            do_HEAD = do_GET  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    @staticmethod
    def etag(content):
        return hashlib.sha256(content).hexdigest()

    def sha(self, repository):
        whole = b"".join(
            name.encode() + content for name, content in sorted(self.files[repository].items())
        )
        return hashlib.sha1(whole).hexdigest()
