"""Packs the programs that scripts/dist has built: package.py BUILT OUT ARCHITECTURE...

Every archive is written here, sorted, with fixed owners and the commit's time: the same input gives the same bytes.
"""

import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import certifi

ROOT = Path(__file__).parents[2]
TIME = int(os.environ["SOURCE_DATE_EPOCH"])
COMMIT = os.environ["BUILD_COMMIT"]
VERSION = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
UNDECIDED = "not decided yet"
SUMMARY = "Gateway in front of APIs that AI agents call"
# Debian and OCI have the same names.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# The user of the image.
USER = 65532


def packed(data):
    """Without a name and a time."""
    return gzip.compress(data, 9, mtime=0)


class Tree:
    """Files of an archive, by path."""

    def __init__(self):
        self.entries = {}

    def file(self, path, data, mode=0o644):
        self._folders(path)
        self.entries[path] = (mode, data.encode() if isinstance(data, str) else data, 0)

    def folder(self, path, mode=0o755, owner=0):
        self._folders(path)
        self.entries[path] = (mode, None, owner)

    def _folders(self, path):
        for parent in list(Path(path).parents)[:-1]:
            self.entries.setdefault(str(parent), (0o755, None, 0))

    def tar(self, prefix=""):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for path, (mode, data, owner) in sorted(self.entries.items()):
                entry = tarfile.TarInfo(prefix + path)
                entry.mode, entry.mtime, entry.uid, entry.gid = mode, TIME, owner, owner
                if owner == 0:
                    entry.uname = entry.gname = "root"
                if data is None:
                    entry.type = tarfile.DIRTYPE
                    archive.addfile(entry)
                else:
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
        return out.getvalue()


def read(path):
    return (ROOT / path).read_bytes()


class Build:
    """The programs of one architecture."""

    def __init__(self, folder, arch):
        self.folder, self.arch, self.debian = folder / arch, arch, ARCHITECTURES[arch]
        # Each is run here once, the other architecture's under qemu.
        self.emulator = [] if platform.machine() == arch else [f"qemu-{arch}-static"]
        names = sorted(path.name for path in self.folder.iterdir() if path.suffix != ".debug")
        for name in names:
            if COMMIT not in (said := self.run("--version", program=name)):
                raise SystemExit(f"{self.folder}/{name} is another build: {said}")
        self.features = self.run("version").strip()
        self.programs = {name: (self.folder / name).read_bytes() for name in names}
        self.program = self.programs["tiergate"]
        self.completions = {shell: self.run("completions", shell) for shell in ("bash", "zsh", "fish")}
        with tempfile.TemporaryDirectory() as pages:
            self.run("man", pages)
            self.pages = {page.name: page.read_bytes() for page in sorted(Path(pages).iterdir())}

    def run(self, *arguments, program="tiergate"):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIERGATE_")}
        command = [*self.emulator, str(self.folder / program), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def examples(tree, folder):
    """Configurations, alert rules and dashboard."""
    for path in sorted((ROOT / "conf").glob("*.toml")):
        tree.file(f"{folder}/conf/{path.name}", path.read_bytes())
    tree.file(f"{folder}/prometheus/alerts.yaml", read("deploy/prometheus/alerts.yaml"))
    tree.file(f"{folder}/grafana/dashboard.json", read("deploy/grafana/dashboard.json"))


def tarball(build):
    tree = Tree()
    name = f"tiergate-{VERSION}-{build.arch}-linux"
    tree.file(f"{name}/tiergate", build.program, 0o755)
    for shell, text in build.completions.items():
        tree.file(f"{name}/completions/tiergate.{shell}", text)
    for page, text in build.pages.items():
        tree.file(f"{name}/man/{page}", text)
    for unit in ("tiergate.service", "tiergate.socket"):
        tree.file(f"{name}/systemd/{unit}", read(f"deploy/systemd/{unit}"))
    tree.file(f"{name}/CHANGELOG.md", read("CHANGELOG.md"))
    examples(tree, name)
    return f"{name}.tar.gz", packed(tree.tar())


def further(build):
    """Programs beside `tiergate`, each alone."""
    for program in sorted(build.programs.keys() - {"tiergate"}):
        name = f"{program}-{VERSION}-{build.arch}-linux"
        tree = Tree()
        tree.file(f"{name}/{program}", build.programs[program], 0o755)
        yield f"{name}.tar.gz", packed(tree.tar())


def symbols(build):
    name = f"tiergate-{VERSION}-{build.arch}-linux-symbols"
    tree = Tree()
    for program in build.programs:
        tree.file(f"{name}/{program}.debug", (build.folder / f"{program}.debug").read_bytes())
    return f"{name}.tar.gz", packed(tree.tar())


def replaced(text, *changes):
    for old, new in changes:
        if text.count(old) != 1:
            raise SystemExit(f"deploy/systemd: {old!r} is there {text.count(old)} times")
        text = text.replace(old, new)
    return text


def service():
    """The unit with the package's path and user."""
    _, text = read("deploy/systemd/tiergate.service").decode().split("\n\n", 1)
    return "# Tiergate as a service of systemd (252 or later).\n\n" + replaced(
        text,
        ("ExecStart=/usr/local/bin/", "ExecStart=/usr/bin/"),
        ("# A user that exists while the service runs. ", "# The package makes this user. "),
        ("DynamicUser=yes", "User=tiergate\nGroup=tiergate"),
    )


def deb(build):
    data = Tree()
    data.file("usr/bin/tiergate", build.program, 0o755)
    data.file("usr/lib/systemd/system/tiergate.service", service())
    data.file("usr/lib/systemd/system/tiergate.socket", read("deploy/systemd/tiergate.socket"))
    data.file("usr/share/bash-completion/completions/tiergate", build.completions["bash"])
    data.file("usr/share/zsh/vendor-completions/_tiergate", build.completions["zsh"])
    data.file("usr/share/fish/vendor_completions.d/tiergate.fish", build.completions["fish"])
    for page, text in build.pages.items():
        data.file(f"usr/share/man/man1/{page}.gz", packed(text))
    doc = "usr/share/doc/tiergate"
    data.file(f"{doc}/copyright", f"Licence: {UNDECIDED}.\n")
    data.file(f"{doc}/CHANGELOG.md.gz", packed(read("CHANGELOG.md")))
    examples(data, f"{doc}/examples")
    data.folder("etc/tiergate", 0o750)
    data.file("etc/tiergate/environment", read("scripts/dist.d/environment"), 0o600)
    files = {path: content for path, (_, content, _) in data.entries.items() if content is not None}
    fields = {
        "Package": "tiergate",
        "Version": VERSION,
        "Architecture": build.debian,
        "Maintainer": "Tiergate",
        "Installed-Size": sum(len(content) for content in files.values()) // 1024 + 1,
        # /bin/kill of procps reloads. The program itself needs no library.
        "Depends": "ca-certificates, passwd, procps",
        "Recommends": "systemd (>= 252)",
        "Section": "net",
        "Priority": "optional",
        "Description": f"{SUMMARY}\n It admits agents that are registered on a chain and have a stake there.",
    }
    control = Tree()
    control.file("control", "".join(f"{name}: {value}\n" for name, value in fields.items()))
    control.file("conffiles", "/etc/tiergate/environment\n")
    sums = [f"{hashlib.md5(content).hexdigest()}  {path}\n" for path, content in sorted(files.items())]
    control.file("md5sums", "".join(sums))
    for script in ("postinst", "prerm", "postrm"):
        control.file(script, read(f"scripts/dist.d/{script}"), 0o755)
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": packed(control.tar("./")),
        "data.tar.gz": packed(data.tar("./")),
    }
    out = b"!<arch>\n"
    for name, content in members.items():
        out += f"{name:<16}{TIME:<12}0     0     100644  {len(content):<10}`\n".encode()
        out += content + b"\n" * (len(content) % 2)
    return f"tiergate_{VERSION}_{build.debian}.deb", out


def image(builds):
    """A layout of OCI with one index of all architectures, as an archive; also the index's digest."""
    layout = Tree()

    def blob(data, kind):
        data = data if isinstance(data, bytes) else json.dumps(data, sort_keys=True).encode()
        digest = hashlib.sha256(data).hexdigest()
        layout.file(f"blobs/sha256/{digest}", data)
        media = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}

    created = datetime.fromtimestamp(TIME, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": "tiergate",
        "org.opencontainers.image.description": SUMMARY,
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.revision": COMMIT,
        "org.opencontainers.image.created": created,
    }
    manifests = []
    for build in builds:
        root = Tree()
        root.file("usr/local/bin/tiergate", build.program, 0o755)
        root.file("etc/ssl/certs/ca-certificates.crt", Path(certifi.where()).read_bytes())
        root.file("etc/passwd", f"root:x:0:0::/:/\ntiergate:x:{USER}:{USER}::/var/lib/tiergate:/\n")
        root.file("etc/group", f"root:x:0:\ntiergate:x:{USER}:\n")
        root.folder("etc/tiergate")
        # The embedded store's folder, for a volume.
        root.folder("var/lib/tiergate/data", 0o700, USER)
        layer = root.tar()
        config = {
            "architecture": build.debian,
            "os": "linux",
            "created": created,
            "config": {
                "User": f"{USER}:{USER}",
                "Env": ["PATH=/usr/local/bin", "TIERGATE_CONFIG=/etc/tiergate/tiergate.toml"],
                "Entrypoint": ["/usr/local/bin/tiergate"],
                "Cmd": ["run"],
                "WorkingDir": "/var/lib/tiergate",
                "StopSignal": "SIGTERM",
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
            "history": [{"created": created, "created_by": "scripts/dist"}],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob(config, "config.v1+json"),
            "layers": [blob(packed(layer), "layer.v1.tar+gzip")],
            "annotations": labels,
        }
        described = blob(manifest, "manifest.v1+json")
        manifests.append(described | {"platform": {"architecture": build.debian, "os": "linux"}})
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
        "annotations": labels,
    }
    described = blob(index, "index.v1+json")
    named = described | {"annotations": {"org.opencontainers.image.ref.name": VERSION}}
    layout.file("index.json", json.dumps({"schemaVersion": 2, "manifests": [named]}))
    layout.file("oci-layout", '{"imageLayoutVersion": "1.0.0"}')
    return f"tiergate-{VERSION}-image.tar", layout.tar(), described["digest"]


def chart(digest):
    tree = Tree()
    folder = ROOT / "deploy/helm/tiergate"
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        if path.name == "values.yaml":
            empty = b'\n  digest: ""\n'
            if empty not in data:
                raise SystemExit("values.yaml of the chart has no image.digest")
            data = data.replace(empty, f'\n  digest: "{digest}"\n'.encode())
        tree.file(f"tiergate/{path.relative_to(folder)}", data)
    return f"tiergate-chart-{VERSION}.tgz", packed(tree.tar())


def clients(out):
    """The packages of the clients, by the tools of their languages."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(out)],
        cwd=ROOT / "clients/python",
        check=True,
        capture_output=True,
    )
    subprocess.run(
        ["npm", "pack", "--silent", "--pack-destination", str(out)],
        cwd=ROOT / "clients/typescript",
        check=True,
        stdout=subprocess.DEVNULL,
    )
    # The chart would have the same name.
    (out / f"tiergate-{VERSION}.tgz").rename(out / f"tiergate-npm-{VERSION}.tgz")


def toolchain():
    def said(*command):
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    pinned = re.findall(r"^([a-z-]+)==(\S+)", read("tools/dist.txt").decode(), re.M)
    return {
        "rustc": said("rustc", "--version"),
        "python": platform.python_version(),
        "npm": said("npm", "--version"),
    } | dict(pinned)


def main():
    built, out, *names = sys.argv[1:]
    out = Path(out).resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    builds = [Build(Path(built), name) for name in names]
    files = []
    for build in builds:
        files += [tarball(build), *further(build), symbols(build), deb(build)]
    archive, data, digest = image(builds)
    files += [(archive, data), chart(digest)]
    for name, data in files:
        (out / name).write_bytes(data)
    clients(out)

    def described(path):
        data = path.read_bytes()
        return {"name": path.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    manifest = {
        "name": "tiergate",
        "version": VERSION,
        "commit": COMMIT,
        "time": TIME,
        "licence": UNDECIDED,
        "programs": {build.arch: build.features for build in builds},
        "toolchain": toolchain(),
        "image": digest,
        "files": [described(path) for path in sorted(out.iterdir())],
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    sums = [described(path) for path in sorted(out.iterdir())]
    (out / "SHA256SUMS").write_text("".join(f"{file['sha256']}  {file['name']}\n" for file in sums))
    for file in sums:
        print(f"{file['bytes']:>10}  {file['name']}")
    print(f"The licence is {UNDECIDED}: give these files to nobody before it is.")


main()
