//! Connections that send one thing over and over, and how they end.

use std::io::Read;
use std::net::{Shutdown, SocketAddr};

use crate::rig::frames::{GOAWAY, PREFACE, SETTINGS, frame};
use crate::rig::scope::Running;
use crate::support::wire::Wire;

/// The most that is remembered of what the gateway said.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// How a flood ended.
#[derive(Debug)]
pub(crate) struct Ending {
    /// How many pieces the gateway's side of the connection took.
    pub(crate) pieces: u32,
    /// The error code with which the gateway said goodbye.
    pub(crate) goodbye: Option<u32>,
}

/// Begins to speak HTTP/2 and sends pieces until there are no more or the gateway closes. What it answers is read
/// meanwhile, so that it never waits for that.
pub(crate) fn flood(
    gateway: SocketAddr,
    running: &Running,
    pieces: u32,
    mut piece: impl FnMut(u32) -> Vec<u8>,
) -> Ending {
    let mut wire = Wire::open(gateway);
    let mut incoming = wire.socket();
    let reader = std::thread::spawn(move || {
        let (mut said, mut buffer) = (Vec::new(), vec![0; 65_536]);
        while let Ok(count @ 1..) = incoming.read(&mut buffer) {
            let room = KEPT_BYTES_MAX.saturating_sub(said.len()).min(count);
            said.extend_from_slice(&buffer[..room]);
        }
        said
    });
    let mut sent = 0;
    if wire.write(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).is_ok() {
        sent =
            (0..pieces).take_while(|number| running.is_on() && wire.write(&piece(*number)).is_ok()).count();
    }
    let _ = wire.socket().0.shutdown(Shutdown::Write);
    let said = reader.join().unwrap();
    Ending { pieces: u32::try_from(sent).unwrap(), goodbye: goodbye(&said) }
}

fn goodbye(said: &[u8]) -> Option<u32> {
    let mut rest = said;
    while let Some((head, behind)) = rest.split_at_checked(9) {
        let length = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap();
        let (payload, behind) = behind.split_at_checked(length)?;
        if head[3] == GOAWAY {
            let code = u32::from_be_bytes(payload[4..8].try_into().unwrap());
            // The library first says that it is about to close, without an error.
            if code != 0 {
                return Some(code);
            }
        }
        rest = behind;
    }
    None
}
