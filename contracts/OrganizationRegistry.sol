// The development chain's organization registry: which organizations list an agent, and whether they are verified.
// Anybody may create, change and verify any organization.
// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

contract OrganizationRegistry {
    event OrganizationCreated(uint256 indexed orgId, string name);
    event OrganizationVerified(uint256 indexed orgId, bool verified);
    event MemberAdded(uint256 indexed orgId, uint256 indexed agentId);
    event MemberRemoved(uint256 indexed orgId, uint256 indexed agentId);

    error OrganizationNonexistent(uint256 orgId);
    error AlreadyMember(uint256 orgId, uint256 agentId);
    error NotMember(uint256 orgId, uint256 agentId);

    struct Organization {
        uint256 orgId;
        string name;
        bool verified;
    }

    /// The organization with id n stands at index n - 1.
    Organization[] private _organizations;
    mapping(uint256 agentId => uint256[]) private _memberships;

    function getAgentOrganizations(uint256 agentId) external view returns (Organization[] memory organizations) {
        uint256[] storage ids = _memberships[agentId];
        organizations = new Organization[](ids.length);
        for (uint256 i = 0; i < ids.length; i++) organizations[i] = _organizations[ids[i] - 1];
    }

    function createOrganization(string calldata name) external returns (uint256 orgId) {
        orgId = _organizations.length + 1;
        _organizations.push(Organization(orgId, name, false));
        emit OrganizationCreated(orgId, name);
    }

    function setVerified(uint256 orgId, bool verified) external {
        _requireOrganization(orgId);
        _organizations[orgId - 1].verified = verified;
        emit OrganizationVerified(orgId, verified);
    }

    function addMember(uint256 orgId, uint256 agentId) external {
        _requireOrganization(orgId);
        uint256[] storage ids = _memberships[agentId];
        if (_position(ids, orgId) < ids.length) revert AlreadyMember(orgId, agentId);
        ids.push(orgId);
        emit MemberAdded(orgId, agentId);
    }

    /// Closes the gap, so that the other memberships keep their order.
    function removeMember(uint256 orgId, uint256 agentId) external {
        _requireOrganization(orgId);
        uint256[] storage ids = _memberships[agentId];
        uint256 index = _position(ids, orgId);
        if (index == ids.length) revert NotMember(orgId, agentId);
        for (uint256 i = index; i + 1 < ids.length; i++) ids[i] = ids[i + 1];
        ids.pop();
        emit MemberRemoved(orgId, agentId);
    }

    /// Where an organization stands in a list; the list's length when it does not.
    function _position(uint256[] storage ids, uint256 orgId) private view returns (uint256 index) {
        while (index < ids.length && ids[index] != orgId) index++;
    }

    function _requireOrganization(uint256 orgId) private view {
        if (orgId == 0 || orgId > _organizations.length) revert OrganizationNonexistent(orgId);
    }
}
