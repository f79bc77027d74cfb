"""`tiergate keys` of the Python client: an agent's key, for owners whose computer has no `tiergate` program.

Flags, answers and exit codes are those of that program, which does more.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import secrets
import stat
import sys
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from . import Tiergate, errors
from .signing import Signed, Signer

_SECRET_BYTES_MAX = 16_384
_FAILED, _UNUSABLE, _KEY_UNSURE = 1, 2, 3
_OWN_TYPES = {"generate": "GenerateKey", "rotate": "RotateKey", "revoke": "RevokeKey"}
_EXAMPLES = """\
examples:
  uvx --from 'tiergate[eth]' tiergate keys generate --url https://keys.example \\
      --agent-id 4 --owner-key-file owner.key --out api.key
  uvx tiergate keys status --url https://keys.example --agent-id 4
"""


class _Failure(Exception):
    def __init__(self, message: str, code: int = _FAILED) -> None:
        super().__init__(message)
        self.code = code


def main() -> NoReturn:
    """Runs the command, and ends the process with its exit code."""
    given = _arguments().parse_args()
    given.sends = False
    try:
        _run(given)
    except _Failure as failure:
        _complain(str(failure))
        sys.exit(failure.code)
    except errors.TiergateError as error:
        sys.exit(_refused(given, error))
    except ValueError as error:
        _complain(str(error))
        sys.exit(_FAILED)
    sys.exit(0)


def _arguments() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("tiergate", description="Agents' API keys at a service of Tiergate.")
    keys = parser.add_subparsers(metavar="keys", required=True).add_parser("keys", help="an agent's API key")
    operations = keys.add_subparsers(dest="operation", metavar="OPERATION", required=True)
    for operation in (*_OWN_TYPES, "status"):
        command = operations.add_parser(
            operation, help=f"{operation} the agent's key", epilog=_EXAMPLES, formatter_class=formatter
        )
        command.add_argument("--url", default=os.environ.get("TIERGATE_URL", "http://127.0.0.1:8080"))
        command.add_argument("--allow-http", metavar="HOST", default=os.environ.get("TIERGATE_ALLOW_HTTP"))
        command.add_argument("--agent-id", metavar="N", type=_number)
        command.add_argument("-o", "--output", choices=["text", "json"], default="text")
        if operation == "status":
            continue
        key = "the owner's private key, or an encrypted keystore; - is standard input; or TIERGATE_OWNER_KEY"
        command.add_argument("--owner-key-file", metavar="FILE", help=key)
        password = "the keystore's password; or TIERGATE_KEYSTORE_PASSWORD"
        command.add_argument("--password-file", metavar="FILE", help=password)
        name = "the service's name, where changes of keys are signed as types of their own"
        command.add_argument("--service-name", metavar="NAME", help=name)
        command.add_argument("--typed-data", action="store_true", help="print what is to be signed elsewhere")
        command.add_argument("--signed", metavar="FILE", help="what --typed-data printed")
        command.add_argument("--signature", metavar="FILE", help="the signature of it; - is standard input")
        command.add_argument("--name", metavar="NAME", help="which key, where an agent may have several")
        if operation == "rotate":
            grace = "for how long the replaced key goes on"
            command.add_argument("--grace-seconds", metavar="SECONDS", type=_number, help=grace)
        if operation != "revoke":
            ends = "after how long the key ends; without it, it does not"
            command.add_argument("--expires-in", metavar="SECONDS", type=_number, help=ends)
            tenants = "the ids of the tenants that the key opens, with commas between them"
            command.add_argument("--tenants", metavar="IDS", type=lambda text: text.split(","), help=tenants)
            command.add_argument("--declared-endpoint", metavar="URL", help="the application of the new key")
            out = "write the key to this file, which you alone can read, and don't print it"
            command.add_argument("--out", metavar="FILE", help=out)
    return parser


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,78}", text):
        raise argparse.ArgumentTypeError("not a number in digits")
    return int(text)


def _run(given: argparse.Namespace) -> None:
    operation = given.operation
    with _service(given) as service:
        if operation == "status":
            status = service.keys.status(_agent(given))
            return _print(given, {"agentId": str(status.agent_id), "hasKey": status.has_key})
        if given.typed_data:
            return _say(given, json.dumps(service.typed_data(_agent(given), operation), indent=2))
        signer: Signer | Signed = _signed_elsewhere(given, service) if given.signed else _owner(given)
        agent = _agent(given)
        if operation == "revoke":
            service.signing()
            given.sends = True
            revoked = service.keys.revoke(agent, signer, name=given.name)
            return _print(given, {"agentId": str(revoked.agent_id), "success": True})
        file = _KeyFile(given.out, operation == "rotate") if given.out else None
        try:
            # Until here nothing is changed.
            service.signing()
            given.sends = True
            asked = ("declared_endpoint", "name", "expires_in", "tenants", "grace_seconds")
            terms = {name: getattr(given, name) for name in asked if hasattr(given, name)}
            call: Any = service.keys.generate if operation == "generate" else service.keys.rotate
            issued = call(agent, signer, **terms)
            if file is None:
                return _print(given, {"agentId": str(issued.agent_id), "apiKey": issued.api_key})
            file.keep(issued.api_key)
            _print(given, {"agentId": str(issued.agent_id), "file": given.out})
        finally:
            if file is not None:
                file.end()
    return None


def _agent(given: argparse.Namespace) -> int:
    if given.agent_id is None:
        raise _Failure("name the agent with --agent-id", _UNUSABLE)
    return int(given.agent_id)


def _service(given: argparse.Namespace) -> Tiergate:
    url = urlsplit(given.url)
    host = url.hostname or ""
    if url.scheme not in ("http", "https") or not host:
        raise _Failure(
            "--url: write all of it, such as https://keys.example or http://127.0.0.1:8080", _UNUSABLE
        )
    allowed = (given.allow_http or "").lower().strip("[]")
    is_this_machine = host == "localhost"
    with suppress(ValueError):
        is_this_machine = is_this_machine or ip_address(host).is_loopback
    if url.scheme == "http" and not is_this_machine and host != allowed:
        raise _Failure(
            f"others could read keys and signatures on the way to {host}: use https, "
            f"or allow it with --allow-http {host}",
            _UNUSABLE,
        )
    options: dict[str, Any] = {"allow_http": given.allow_http} if given.allow_http else {}
    if getattr(given, "service_name", None):
        options["service_name"] = given.service_name
    return Tiergate(given.url, **options)


def _signed_elsewhere(given: argparse.Namespace, service: Tiergate) -> Signed:
    if not given.signature:
        raise _Failure("--signed and --signature go together", _UNUSABLE)
    try:
        data = json.loads(_read(given.signed))
        kind, domain, agent = data["primaryType"], data["domain"], int(data["message"]["agentId"])
    except (ValueError, KeyError, TypeError):
        raise _Failure(f"{given.signed} is not what --typed-data prints") from None
    if kind not in ("Verification", _OWN_TYPES[given.operation]):
        raise _Failure(f"{given.signed} is not signed to {given.operation} a key")
    if given.agent_id not in (None, agent):
        raise _Failure(f"--agent-id is {given.agent_id}, but {given.signed} is for {agent}")
    given.agent_id = agent
    if service.typed_data(agent, given.operation)["domain"] != domain:
        raise _Failure(f"{given.signed} is signed for another service than --url names")
    signature = _read(given.signature).strip()
    if not re.fullmatch(r"0x([0-9a-fA-F]{2}){65,4096}", signature):
        raise _Failure(f"{given.signature} does not hold a signature")
    return Signed(data, signature)


def _owner(given: argparse.Namespace) -> Signer:
    file = given.owner_key_file
    if file == "-" and sys.stdin.isatty():
        # A terminal shows what it is given otherwise.
        key: str | None = getpass.getpass("Paste the owner's key: ")
    else:
        key = _read(file) if file else os.environ.get("TIERGATE_OWNER_KEY")
    if key is None:
        raise _Failure(
            "no owner's key: name its file with --owner-key-file (- is standard input), set TIERGATE_OWNER_KEY, "
            "or sign elsewhere with --typed-data"
        )
    key, place = key.strip(), file or "TIERGATE_OWNER_KEY"
    try:
        from eth_account import Account
    except ImportError:
        raise _Failure(
            "to sign with a key, eth-account is needed: uvx --from 'tiergate[eth]' tiergate keys ...; "
            "or sign elsewhere with --typed-data",
            _UNUSABLE,
        ) from None
    try:
        # No error shows anything of it.
        if key.startswith("{"):
            return _signer(Account.from_key(Account.decrypt(key, _password(given))))
        if file not in (None, "-"):
            _warn_of_readers(Path(file))
        return _signer(Account.from_key(key))
    except _Failure:
        raise
    except Exception:
        raise _Failure(
            f"{place} holds neither a private key of 64 hex characters nor a keystore of this password"
        ) from None


def _signer(account: Any) -> Signer:
    signer: Signer = account
    return signer


def _password(given: argparse.Namespace) -> str:
    if given.password_file:
        return _read(given.password_file).rstrip("\r\n")
    password = os.environ.get("TIERGATE_KEYSTORE_PASSWORD")
    if password is None:
        raise _Failure(
            "no password: name its file with --password-file, or set TIERGATE_KEYSTORE_PASSWORD"
        )
    return password


def _read(file: str) -> str:
    try:
        if file == "-":
            data = sys.stdin.buffer.read(_SECRET_BYTES_MAX + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(_SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise _Failure(
            f"{file}: can't be read: {error.strerror}; name a file that you can read, or - for standard input"
        ) from None
    if len(data) > _SECRET_BYTES_MAX:
        raise _Failure(f"{file}: is longer than {_SECRET_BYTES_MAX} bytes")
    return data.decode("utf-8", errors="replace")


def _warn_of_readers(file: Path) -> None:
    """Windows has no such rights."""
    found = file.stat()
    if os.name == "posix" and stat.S_ISREG(found.st_mode) and found.st_mode & 0o044:
        _complain(f"warning: others may read {file}; keep it from them: chmod 600 {file}")


class _KeyFile:
    """A file for a key that is not made yet, beside its place until it holds the key."""

    def __init__(self, path: str, is_replaced: bool) -> None:
        # A link leads to the new file too.
        self._path = Path(os.path.realpath(path))
        self._is_replaced = os.path.lexists(path)
        if self._is_replaced and not (is_replaced and self._holds_key()):
            raise _Failure(f"cannot create {path}: it exists, and is no API key that may be replaced")
        self._beside = Path(f"{self._path}.new-{secrets.token_hex(8)}")
        try:
            self._file: int | None = os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise _Failure(f"cannot create {path}: {error.strerror}") from None

    def _holds_key(self) -> bool:
        """True for a file with an API key alone, of any prefix."""
        with suppress(OSError, ValueError):
            if self._path.is_file() and self._path.stat().st_size <= _SECRET_BYTES_MAX:
                return bool(re.fullmatch(r"(?!0x)[A-Za-z0-9_-]+[0-9a-f]{64}\s*", self._path.read_text()))
        return False

    def keep(self, key: str) -> None:
        assert self._file is not None
        try:
            os.write(self._file, f"{key}\n".encode())
            os.fsync(self._file)
            os.close(self._file)
            self._file = None
            if self._is_replaced:
                os.replace(self._beside, self._path)
            else:
                self._enter()
        except OSError as error:
            message = f"the new key is in {self._beside}, or lost: {error.strerror}"
            raise _Failure(message, _KEY_UNSURE) from None

    def _enter(self) -> None:
        """Gives the file its name, unless another has it by now. Some filesystems know no links."""
        try:
            os.link(self._beside, self._path)
        except OSError:
            if os.path.lexists(self._path):
                raise
            os.replace(self._beside, self._path)
        else:
            self._beside.unlink()

    def end(self) -> None:
        """Removes what holds no key."""
        if self._file is None:
            return
        os.close(self._file)
        if self._beside.stat().st_size == 0:
            self._beside.unlink()


def _print(given: argparse.Namespace, fields: dict[str, Any]) -> None:
    if given.output == "json":
        return _say(given, json.dumps(fields))
    width = max(map(len, fields))
    shown = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
    return _say(given, "\n".join(f"{name:{width}}  {_shown(value)}" for name, value in shown.items()))


def _say(given: argparse.Namespace, text: str) -> None:
    """Writes to standard output, and fails where that is full or closed."""
    try:
        print(text, flush=True)
    except OSError as error:
        # Python would write it once more at its end.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        lost, code = ("; the key was changed", _KEY_UNSURE) if given.sends else ("", _FAILED)
        raise _Failure(f"standard output can't be written: {error.strerror}{lost}", code) from None


def _refused(given: argparse.Namespace, error: errors.TiergateError) -> int:
    """Says what the service said. The exit code."""
    # With a status something has answered.
    kind = error.error_type or ("UNEXPECTED_ANSWER" if error.status else "NO_ANSWER")
    _complain(f"{kind}: {error.said}")
    if given.output == "json":
        with suppress(_Failure):
            _say(given, json.dumps({"error": error.said, "errorType": kind, "details": error.details}))
    # Two types say that nothing was changed; a server in front of the service may say anything else.
    is_failure = (error.status or 0) >= 500 and not isinstance(error, (errors.RpcError, errors.Overloaded))
    return _KEY_UNSURE if given.sends and (is_failure or isinstance(error, errors.OutcomeUnknown)) else _FAILED


def _shown(text: str) -> str:
    """Text from elsewhere, without what a terminal obeys."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _complain(text: str) -> None:
    print(f"tiergate: {_shown(text)}", file=sys.stderr)


if __name__ == "__main__":
    main()
