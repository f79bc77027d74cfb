//! Stub.
use pingora::upstreams::peer::HttpPeer;
/// Stub.
#[derive(Default)]
pub(crate) struct UpstreamIdentity;
impl UpstreamIdentity {
    pub(crate) fn load(_rules: &crate::domain::tenant::UpstreamTls) -> Result<Self, Vec<String>> {
        Ok(Self)
    }
    pub(crate) fn apply(&self, _peer: &mut HttpPeer) {}
}
