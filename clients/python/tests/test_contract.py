"""The client against the project's own files: its description of the API, its table of errors, and the golden vectors."""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from conftest import FACTS, STRANGER, Owned, Script
from eth_account import Account
from eth_account.messages import _hash_eip191_message, encode_typed_data
from eth_account.signers.local import LocalAccount
from test_retries import refusal

from tiergate import Domain, Signed, Tiergate, TypedData, answers, errors, signing

ROOT = Path(__file__).parents[3]
SCHEMAS = json.loads((ROOT / "src/api/openapi.json").read_text())["components"]["schemas"]
VECTORS = json.loads((ROOT / "clients/vectors.json").read_text())
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


#: Fields that are there only where they say something.
SOMETIMES = {"bounded", "stakedAmount", "tierSource", "name", "expiresAt", "tenants"}


def described(schema: dict[str, Any]) -> Any:
    """Returns the form of what a schema describes: fields by name, in an object."""
    while "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rsplit("/", 1)[1]]
    if "oneOf" in schema:
        (one,) = [described(each) for each in schema["oneOf"] if each != {"type": "null"}]
        return one, None
    kind = schema["type"]
    if isinstance(kind, list):
        return described(schema | {"type": kind[0]}), None
    if kind == "object" and "properties" in schema:
        # The others are the gateway's own, which the service does not answer.
        fields = {name: described(schema["properties"][name]) for name in schema["required"]}
        there = SOMETIMES & (schema["properties"].keys() - fields.keys())
        return fields | {name: (described(schema["properties"][name]), None) for name in there}
    if kind == "array":
        return [described(schema["items"])]
    if kind == "string" and re.search(r"\[0-9\]\{1,78\}\$$", schema.get("pattern", "")):
        return int
    if kind == "string" and schema.get("pattern", "").endswith(r"(\.[0-9]{1,18})?$"):
        return Decimal
    return {"string": str, "integer": int, "number": float, "boolean": bool, "object": dict}[kind]


def read(kind: Any) -> Any:
    """Returns the form of what a type reads."""
    arguments = typing.get_args(kind)
    match typing.get_origin(kind):
        case types.UnionType:
            return read(arguments[0]), None
        case typing.Literal:
            return type(arguments[0])
        case builtin if builtin is tuple:
            return [read(arguments[0])]
        case builtin if builtin is dict:
            return dict
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return {answers.json_name(name): read(hint) for name, hint in hints.items() if name != "rate_limit"}
    return kind


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (answers.Verification, "VerificationResult"),
        (answers.Profile, "Profile"),
        (answers.IssuedKey, "IssuedKey"),
        (answers.RevokedKey, "RevokedKey"),
        (answers.KeyStatus, "KeyStatus"),
    ],
)
def test_answers_are_typed_as_the_api_describes_them(kind: type, schema: str) -> None:
    assert read(kind) == described({"$ref": f"#/components/schemas/{schema}"})


def test_the_signing_document_is_typed_as_the_api_describes_it() -> None:
    ours, theirs = read(answers.Signing), described({"$ref": "#/components/schemas/Signing"})
    # The client has this type itself, and reads documents that do not name the chain.
    # Of what owners may ask for it reads nothing: the service says where it is too much.
    for field in ("profile", "contractMaxAgeSeconds", "keyExpiresMaxSeconds", "keysPerAgentMax"):
        del theirs[field]
    theirs |= {"chainId": (int, None), "contracts": (dict, None), "tierSource": (str, None), "agentWallet": (bool, None)}
    theirs["version"] = (str, None)
    assert ours == theirs


def test_each_error_type_has_its_class() -> None:
    documented = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+|OVERLOADED|FORBIDDEN)`", (ROOT / "docs/errors.md").read_text()))
    in_schemas = {
        schema["properties"]["errorType"]["enum"][0]
        for schema in SCHEMAS.values()
        if "errorType" in schema.get("properties", {})
    }
    assert len(documented) > 20 and in_schemas <= documented - {"FOR_PROGRAMS"}
    assert set(errors.Refused.known) == documented - {"FOR_PROGRAMS"}


@pytest.mark.parametrize("error_type", [*errors.Refused.known, "OF_TOMORROW"])
def test_each_error_type_is_raised_as_its_class(script: Script, error_type: str) -> None:
    script.answers = [refusal(418, error_type, 9)]
    kind = errors.Refused.known.get(error_type, errors.Refused)
    with Tiergate(script.url, retries=0) as client, pytest.raises(kind, match="for people") as refused:
        client.signing()
    error = refused.value
    assert (type(error), error.error_type, error.status) == (kind, error_type, 418)
    assert (dict(error.details), error.retry_after) == ({"agentId": "4"}, 9)


def full(vector: dict[str, Any]) -> dict[str, Any]:
    """Returns a vector's typed data as the client makes it, with the vector's message."""
    fields = {
        "name": vector["domain"]["name"],
        "version": vector["domain"]["version"],
        "chain_id": vector["domain"]["chainId"],
        "verifying_contract": vector["domain"]["verifyingContract"],
    }
    message = vector["message"]
    typed = signing.typed_data(Domain(**fields), message["agentId"], vector["primaryType"], 0, message.get("service"))
    assert typed["message"].keys() == vector["message"].keys()
    return {**typed, "message": vector["message"]}


def digest(typed: dict[str, Any]) -> str:
    return "0x" + _hash_eip191_message(encode_typed_data(full_message=typed)).hex()


def of_key(typed: TypedData, primary_type: str, service: str) -> TypedData:
    """Returns the change of a key at a service, with the message of typed data of the type Verification."""
    types = {**signing.DOMAIN, primary_type: signing.TYPES[primary_type]}
    message = {"service": service, **typed["message"]}
    return typing.cast(TypedData, {**typed, "types": types, "primaryType": primary_type, "message": message})


def forgeries(
    owner: LocalAccount, stranger: LocalAccount, typed: TypedData, other_domain: dict[str, Any], service: str
) -> dict[str, Signed]:
    """Returns each refused vector's way to forge a signature, applied to this typed data of the type Verification."""
    message = typed["message"]
    reading = {name: value for name, value in message.items() if name != "nonce"}
    types = {**signing.DOMAIN, "ProfileRead": signing.TYPES["ProfileRead"]}
    profile = typing.cast(TypedData, {**typed, "types": types, "primaryType": "ProfileRead", "message": reading})

    def by(account: LocalAccount, **changed: Any) -> str:
        return signing.sign(account, typing.cast(TypedData, {**typed, **changed})).signature

    right = by(owner)
    r, s, v = right[2:66], right[66:130], right[130:]
    flipped = {"1b": "1c", "1c": "1b"}[v]
    rotate = of_key(typed, "RotateKey", service)
    of_rotate = {
        "another change of the key": signing.sign(owner, of_key(typed, "GenerateKey", service)).signature,
        "another service": signing.sign(owner, of_key(typed, "RotateKey", "https://other.example")).signature,
        "a verification for a change of the key": right,
    }
    of_verification = {
        "stranger": by(stranger),
        "another nonce": by(owner, message={**message, "nonce": str(int(message["nonce"]) + 1)}),
        "another domain": by(owner, domain=other_domain),
        "another type": signing.sign(owner, profile).signature,
        "a change of the key for a verification": signing.sign(owner, rotate).signature,
        "high s": f"0x{r}{ORDER - int(s, 16):064x}{flipped}",
        "flipped v": f"0x{r}{s}{flipped}",
        "v of 2": f"0x{r}{s}02",
        "v of 29": f"0x{r}{s}1d",
        "v of EIP-155": f"0x{r}{s}25",
        "r of zero": f"0x{0:064x}{s}1b",
        "s of zero": f"0x{r}{0:064x}1b",
        "r of the order": f"0x{ORDER:064x}{s}1b",
        "s of the order": f"0x{r}{ORDER:064x}1b",
        "short": f"0x{r}{s}",
        "long": right + "00",
        "empty": "0x",
        "no prefix": right[2:],
    }
    signed = {name: Signed(typed, signature) for name, signature in of_verification.items()}
    signed |= {name: Signed(rotate, signature) for name, signature in of_rotate.items()}
    return signed | {"another type for a profile": Signed(profile, right)}


@pytest.mark.parametrize("vector", VECTORS["signatures"], ids=lambda vector: vector["name"])
def test_golden_vectors_have_this_digest_and_signature(vector: dict[str, Any]) -> None:
    typed = full(vector)
    assert digest(typed) == vector["digest"]
    account = Account.from_key(vector["privateKey"])
    assert account.address == vector["address"]
    signed = signing.sign(account, typing.cast(signing.TypedData, typed))
    sent = {name: value for name, value in vector["message"].items() if name != "service"}
    assert signed.body() == {**sent, "signature": vector["signature"]}


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda vector: vector["name"])
def test_refused_vectors_are_made_as_those_that_the_real_service_gets(vector: dict[str, Any]) -> None:
    (owner,) = (Account.from_key(each["privateKey"]) for each in VECTORS["signatures"] if each["name"] == "golden")
    (stranger,) = (Account.from_key(each["privateKey"]) for each in VECTORS["signatures"] if each["name"] == "another owner")
    (other,) = (each["domain"] for each in VECTORS["signatures"] if each["name"] == "another domain")
    sent = {name: value for name, value in vector["message"].items() if name != "service"}
    typed = full(vector | {"primaryType": "Verification", "message": {"nonce": "7"} | sent})
    forged = forgeries(owner, stranger, typing.cast(signing.TypedData, typed), other, "https://verify.example")
    assert (vector["owner"], full(vector)["types"]) == (owner.address, forged[vector["name"]].typed_data["types"])
    assert forged[vector["name"]].body() == {**sent, "signature": vector["signature"]}


def test_each_refused_vector_is_refused_by_the_real_service(service: Tiergate, fresh: Callable[[str], Owned]) -> None:
    agent = fresh("diamond")
    typed = service.typed_data(agent.id)
    other = {**typed["domain"], "version": "2"}
    named = Tiergate(FACTS["owners"], retries=0)
    forged = forgeries(agent.owner, STRANGER, typed, other, FACTS["owners"])
    assert forged.keys() == {vector["name"] for vector in VECTORS["refused"]}
    for name, signed in forged.items():
        well_formed = re.fullmatch("0x[0-9a-f]{130}", signed.signature)
        with pytest.raises(errors.SignatureInvalid if well_formed else errors.ValidationError):
            if signed.typed_data["primaryType"] == "ProfileRead":
                service.profile(agent.id, signed)
            elif signed.typed_data["primaryType"] == "RotateKey":
                named.keys.rotate(agent.id, signed)
            else:
                service.verify_signature(agent.id, signed)
            pytest.fail(name)
    with pytest.raises(errors.SignatureInvalid):
        service.keys.generate(agent.id, forged["high s"])
    # All that is wrong with them is the signature.
    assert service.verify_signature(agent.id, signing.sign(agent.owner, typed)).valid
    right = signing.sign(agent.owner, of_key(typed, "RotateKey", FACTS["owners"]))
    assert named.keys.rotate(agent.id, right).agent_id == agent.id
    named.close()


def test_messages_are_of_now_and_nonces_differ() -> None:
    domain = Domain(name="n", version="1", chain_id=1, verifying_contract="0x" + "0" * 40)
    first, second = (signing.typed_data(domain, "007", "Verification", 1.9)["message"] for _ in range(2))
    assert first["agentId"] == "7" and first["nonce"] != second["nonce"]
    assert first["timestamp"] == second["timestamp"] == 1
    assert json.loads(json.dumps(signing.typed_data(domain, 2**256 - 1, "Verification", 0)))["message"]["agentId"] == str(2**256 - 1)
