//! HTTP/2 as an instrument of abuse: floods that cost the sender little. They end, or cost nothing, and nobody else is
//! served any worse.

use crate::rig::abuse::{Ending, flood};
use crate::rig::case::{Case, cases};
use crate::rig::frames::{
    CALM, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, block, frame, text,
};
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, public_path, unique};
use crate::support::time::{SOON, until};

pub(crate) const CASES: &[Case] = cases![
    rapid_resets_end_the_connection,
    resets_that_the_client_provokes_end_the_connection,
    headers_without_end_end_the_connection,
    a_few_bytes_that_become_megabytes_of_headers_reach_no_upstream,
    empty_frames_hurt_nobody,
    pings_settings_and_priorities_hurt_nobody,
];

/// How many connections flood at once.
const FLOODS: usize = 3;

/// How many streams one piece of a flood opens.
const PER_PIECE: u32 = 100;

/// The number of the stream that a client opens as its `at`-th, from 0.
fn stream(at: u32) -> u32 {
    2 * at + 1
}

fn get(path: &str) -> Vec<u8> {
    block(&[(":method", "GET"), (":scheme", "http"), (":authority", ACME), (":path", path)])
}

fn post(path: &str) -> Vec<u8> {
    block(&[(":method", "POST"), (":scheme", "http"), (":authority", ACME), (":path", path)])
}

/// The frames of as many streams as a piece has.
fn streams(piece: u32, frames: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    (0..PER_PIECE).flat_map(|at| frames(stream(piece * PER_PIECE + at))).collect()
}

/// Each flood got through to the gateway.
#[track_caller]
fn have_begun(endings: &[Ending]) {
    assert_eq!(endings.len(), FLOODS);
    assert!(endings.iter().all(|ending| ending.pieces > 0), "{endings:?}");
}

/// Each flood was stopped, and no later than after so many pieces.
#[track_caller]
fn are_stopped(endings: &[Ending], pieces: u32) {
    have_begun(endings);
    assert!(endings.iter().all(|ending| ending.pieces < pieces), "{endings:?}");
}

/// The same, and with this error. Bytes that the gateway has not read when it closes may take the error away from a
/// client.
#[track_caller]
fn are_calmed(endings: &[Ending], pieces: u32) {
    are_stopped(endings, pieces);
    let codes: Vec<u32> = endings.iter().filter_map(|ending| ending.goodbye).collect();
    assert!(!codes.is_empty() && codes.iter().all(|code| *code == CALM), "{endings:?}");
}

// threat: HTTP/2 abuse
fn rapid_resets_end_the_connection(stage: &Stage) {
    let site = Site::crowded(stage);
    let path = public_path();
    let headers = get(&path);
    let cancel = 8_u32.to_be_bytes();
    let endings = site.endures(FLOODS, |running| {
        flood(site.gateway.address, running, 2_000, |piece| {
            streams(piece, |stream| {
                let opened = frame(HEADERS, END_HEADERS | END_STREAM, stream, &headers);
                [opened, frame(RST_STREAM, 0, stream, &cancel)].concat()
            })
        })
    });
    are_calmed(&endings, 2_000);
    let reached = site.upstream.count_at(&path);
    assert!(reached < 10_000, "the upstream was spared: {reached}");
}

/// "MadeYouReset": the client breaks the rules of each stream, so that the server is the one who resets it.
// threat: HTTP/2 abuse
fn resets_that_the_client_provokes_end_the_connection(stage: &Stage) {
    let site = Site::crowded(stage);
    let headers = post(&public_path());
    let endings = site.endures(FLOODS, |running| {
        flood(site.gateway.address, running, 2_000, |piece| {
            streams(piece, |stream| {
                let opened = frame(HEADERS, END_HEADERS, stream, &headers);
                [opened, frame(WINDOW_UPDATE, 0, stream, &0x7fff_ffff_u32.to_be_bytes())].concat()
            })
        })
    });
    are_calmed(&endings, 2_000);
}

/// Pieces of 16 kB, and pieces of nothing.
// threat: HTTP/2 abuse
fn headers_without_end_end_the_connection(stage: &Stage) {
    let site = Site::crowded(stage);
    let path = public_path();
    let begun = get(&path);
    let more = block(&[("x-more", &"y".repeat(16_000))]);
    for pieces in [frame(CONTINUATION, 0, 1, &more), frame(CONTINUATION, 0, 1, &[]).repeat(50)] {
        let endings = site.endures(FLOODS, |running| {
            flood(site.gateway.address, running, 20_000, |piece| match piece {
                0 => frame(HEADERS, END_STREAM, 1, &begun),
                _ => pieces.clone(),
            })
        });
        are_stopped(&endings, 20_000);
        assert_eq!(site.upstream.count_at(&path), 0);
    }
}

/// A name and a value that are sent once and meant a thousand times (RFC 7541, section 6.1).
// threat: HTTP/2 abuse
fn a_few_bytes_that_become_megabytes_of_headers_reach_no_upstream(stage: &Stage) {
    let site = Site::crowded(stage);
    let path = public_path();
    let mut bomb = get(&path);
    bomb.push(0x40);
    text(&mut bomb, "x-bomb");
    text(&mut bomb, &"b".repeat(3_900));
    // The first entry behind the static table.
    bomb.extend_from_slice(&[0x80 | 62; 10_000]);
    let endings = site.endures(FLOODS, |running| {
        flood(site.gateway.address, running, 200, |piece| {
            frame(HEADERS, END_HEADERS | END_STREAM, stream(piece), &bomb)
        })
    });
    have_begun(&endings);
    assert_eq!(site.upstream.count_at(&path), 0);
}

// threat: HTTP/2 abuse
fn empty_frames_hurt_nobody(stage: &Stage) {
    let site = Site::crowded(stage);
    let folder = public_path();
    let endings = site.endures(FLOODS, |running| {
        let path = format!("{folder}/{}", unique());
        let begun = post(&path);
        flood(site.gateway.address, running, 2_000, |piece| match piece {
            0 => frame(HEADERS, END_HEADERS, 1, &begun),
            1 => until("the request is under way", SOON, || {
                (site.upstream.count_at(&path) == 1).then(|| frame(DATA, 0, 1, &[]))
            }),
            _ => frame(DATA, 0, 1, &[]).repeat(100),
        })
    });
    assert!(endings.iter().all(|ending| ending.pieces > 2), "{endings:?}");
    let seen = site.upstream.seen_with(&folder);
    assert_eq!(seen.len(), FLOODS);
    assert!(seen.iter().all(|seen| !seen.whole && seen.body_bytes == 0), "{seen:?}");
}

// threat: HTTP/2 abuse
fn pings_settings_and_priorities_hurt_nobody(stage: &Stage) {
    let site = Site::crowded(stage);
    let kinds = [
        frame(PING, 0, 0, b"flooding"),
        // The size of the table of headers, again and again.
        frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 16, 0]),
        frame(PRIORITY, 0, 9, &[0, 0, 0, 0, 15]),
        // A kind that nobody knows is passed over.
        frame(0xfe, 0, 0, &[0; 64]),
    ];
    for kind in kinds {
        let flood = |running: &_| flood(site.gateway.address, running, 1_000, |_| kind.repeat(100));
        have_begun(&site.endures(FLOODS, flood));
    }
}
