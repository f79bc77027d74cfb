"""Every call against the real service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest
from conftest import API, FACTS, STRANGER, Owned

from tiergate import AsyncTiergate, Domain, RateLimit, Signed, Tiergate, errors

Fresh = Callable[[str], Owned]


def test_a_key_is_generated_rotated_and_revoked(service: Tiergate, fresh: Fresh) -> None:
    agent = fresh("diamond")
    assert not service.keys.status(agent.id).has_key
    first = service.keys.generate(agent.id, agent.owner, declared_endpoint="https://app.example")
    assert first.agent_id == agent.id and first.api_key not in repr(first)
    assert first.rate_limit == RateLimit(limit=10, remaining=9)
    assert service.keys.status(str(agent.id)).has_key

    verified = service.verify(first.api_key, agent.id, "https://app.example")
    assert (verified.agent_id, verified.owner, verified.trust_tier) == (agent.id, agent.owner.address, 4)
    assert verified.staked_amount == 500_000 * 10**18 and not verified.endpoint_mismatch
    assert verified.metadata_uri == "ipfs://card" and verified.organizations == ()
    assert verified.rate_limit == RateLimit(limit=2700, remaining=2699)
    assert service.verify(first.api_key, origin="https://other.example").endpoint_mismatch

    second = service.keys.rotate(agent.id, agent.owner)
    with pytest.raises(errors.InvalidApiKey):
        service.verify(first.api_key)
    assert service.verify(second.api_key).valid
    assert service.keys.revoke(agent.id, agent.owner).success
    with pytest.raises(errors.InvalidApiKey) as refused:
        service.verify(second.api_key, agent.id)
    assert (refused.value.status, refused.value.details["agentId"]) == (401, str(agent.id))


def test_an_owner_verifies_and_reads_the_profile(service: Tiergate, fresh: Fresh) -> None:
    agent = fresh("unstaked")
    profile = service.profile(agent.id, agent.owner)
    assert (profile.owner, profile.trust_tier, profile.has_key) == (agent.owner.address, 0, False)
    with pytest.raises(errors.TierBlocked) as refused:
        service.verify_signature(agent.id, agent.owner)
    assert refused.value.details["requiredStake"] == str(1_000 * 10**18)

    agent = fresh("diamond")
    assert service.verify_signature(agent.id, agent.owner).trust_tier == 4


def test_signing_names_the_domain_and_the_tiers(service: Tiergate) -> None:
    signing = service.signing()
    assert signing.domain.name == "Service Verification" and signing.primary_type == "Verification"
    assert [tier.tier for tier in signing.tiers] == [0, 1, 2, 3, 4]
    assert signing.chain_id and signing.contracts and signing.contracts["identity"] == signing.domain.verifying_contract
    assert signing is service.signing()


def test_a_signature_may_be_made_elsewhere_and_is_good_for_one_request(service: Tiergate, fresh: Fresh) -> None:
    agent = fresh("diamond")
    typed = service.typed_data(agent.id)
    signature = "0x" + bytes(agent.owner.sign_typed_data(full_message=dict(typed)).signature).hex()
    assert service.verify_signature(agent.id, Signed(typed, signature)).valid
    for call in (service.verify_signature, service.keys.generate, service.keys.rotate, service.keys.revoke):
        with pytest.raises(errors.ReplayDetected):
            call(agent.id, Signed(typed, signature))
    with pytest.raises(ValueError, match="purpose"):
        service.profile(agent.id, Signed(typed, signature))
    with pytest.raises(ValueError, match="another agent"):
        service.verify_signature(agent.id + 1, Signed(typed, signature))

    typed = service.typed_data(agent.id, "profile")
    signed = Signed(typed, "0x" + bytes(agent.owner.sign_typed_data(full_message=dict(typed)).signature).hex())
    assert service.profile(agent.id, signed).agent_id == agent.id


def test_changes_of_keys_are_signed_by_types_of_their_own_for_the_service_that_is_named(fresh: Fresh) -> None:
    agent, (named, owners) = fresh("diamond"), (FACTS["named"], FACTS["owners"])
    with (
        Tiergate(owners, retries=0) as by_url,
        Tiergate(named, retries=0, service_name=owners) as by_name,
        Tiergate(named, retries=0, service_name="https://other.example") as elsewhere,
        Tiergate(named, retries=0) as unnamed,
    ):
        by_url.keys.generate(agent.id, agent.owner)
        assert by_name.verify(by_name.keys.rotate(agent.id, agent.owner).api_key).agent_id == agent.id
        with pytest.raises(errors.SignatureInvalid):
            elsewhere.keys.revoke(agent.id, agent.owner)
        with pytest.raises(ValueError, match=f"{named} calls itself '{owners}'"):
            unnamed.keys.revoke(agent.id, agent.owner)
        assert unnamed.verify_signature(agent.id, agent.owner).valid
        typed = by_url.typed_data(agent.id, "rotate")
        assert (typed["primaryType"], typed["message"]["service"]) == ("RotateKey", owners)
        signed = Signed(typed, "0x" + bytes(agent.owner.sign_typed_data(full_message=dict(typed)).signature).hex())
        for call in (by_name.keys.revoke, by_name.verify_signature):
            with pytest.raises(ValueError, match="purpose"):
                call(agent.id, signed)
        by_name.keys.rotate(agent.id, signed)
        assert by_url.keys.revoke(agent.id, agent.owner).success


def test_strangers_are_refused_and_told_who_they_are(service: Tiergate, fresh: Fresh) -> None:
    agent = fresh("diamond")
    with pytest.raises(errors.SignatureInvalid) as refused:
        service.keys.generate(agent.id, STRANGER)
    assert refused.value.details["recoveredSigner"] == STRANGER.address
    assert not service.keys.status(agent.id).has_key


def test_a_known_domain_wins_over_the_services(service: Tiergate, fresh: Fresh) -> None:
    agent = fresh("diamond")
    domain = service.signing().domain
    with Tiergate(API, domain=domain) as client:
        assert client.verify_signature(agent.id, agent.owner).valid
    other = Domain(name=domain.name, version="2", chain_id=domain.chain_id, verifying_contract=domain.verifying_contract)
    with Tiergate(API, domain=other) as client:
        with pytest.raises(errors.SignatureInvalid):
            client.verify_signature(agent.id, agent.owner)
        assert client.signing().domain == other and client.signing().tiers == service.signing().tiers


def test_the_services_refusals_are_typed(service: Tiergate, fresh: Fresh) -> None:
    agent = fresh("bronze")
    key = service.keys.generate(agent.id, agent.owner).api_key
    with pytest.raises(errors.KeyAlreadyExists):
        service.keys.generate(agent.id, agent.owner)
    with pytest.raises(errors.ValidationError) as malformed:
        service.verify("no key")
    assert malformed.value.details["field"] == "apiKey"
    with pytest.raises(errors.AgentNotFound):
        service.verify_signature(2**256 - 1, agent.owner)
    domain = service.signing().domain
    with Tiergate(FACTS["chainless"], domain=domain, retries=0) as client, pytest.raises(errors.RpcError):
        client.verify_signature(agent.id, agent.owner)
    with Tiergate(API + "/nowhere") as client, pytest.raises(errors.NotFound):
        client.signing()
    with pytest.raises(errors.PayloadTooLarge):
        service.verify(key, origin="https://" + "a" * 20_000)
    with pytest.raises(errors.MethodNotAllowed):
        errors.raise_for_error(httpx.get(API + "/verify"))
    for number in (-1, 2**256, "four"):
        with pytest.raises(ValueError):
            service.keys.status(number)


def test_a_real_limit_is_waited_for_as_long_as_the_service_says(
    service: Tiergate, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = fresh("bronze")
    key = service.keys.generate(agent.id, agent.owner).api_key
    service.verify(key)
    with pytest.raises(errors.RateLimited) as refused:
        service.verify(key)
    wait: int = refused.value.details["retryAfter"]
    assert refused.value.retry_after == wait and 0 < wait <= 60

    slept: list[float] = []
    monkeypatch.setattr("tiergate.client.time.sleep", slept.append)
    with Tiergate(API, retries=3, max_wait=100) as client, pytest.raises(errors.RateLimited):
        client.verify(key)
    # Two of these waits are longer than allowed, unless the machine is very slow.
    assert slept and sum(slept) <= 100 and all(0 < seconds <= wait for seconds in slept)


def test_every_call_also_runs_in_asyncio(fresh: Fresh) -> None:
    agent = fresh("diamond")

    async def run() -> None:
        async with AsyncTiergate(API) as service:
            assert (await service.signing()).domain.chain_id == 8004
            key = (await service.keys.generate(agent.id, agent.owner)).api_key
            assert (await service.keys.status(agent.id)).has_key
            assert (await service.verify(key)).agent_id == agent.id
            assert (await service.verify_signature(agent.id, agent.owner)).valid
            assert (await service.profile(agent.id, agent.owner)).has_key
            key = (await service.keys.rotate(agent.id, agent.owner)).api_key
            assert (await service.keys.revoke(agent.id, agent.owner)).success
            with pytest.raises(errors.InvalidApiKey):
                await service.verify(key)

    asyncio.run(run())
