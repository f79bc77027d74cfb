//! Bodies in chunks.

use proptest::collection::vec;
use proptest::prelude::{any, prop_assert_eq, proptest};

use crate::http1::chunked::{BrokenChunks, Decoder, LINE_BYTES_MAX, Piece, TRAILER_BYTES_MAX, write_size};

/// A body read to its end: its data, its trailers, and the bytes of it; or the bytes that came, when it goes on.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    data: Vec<u8>,
    trailers: Vec<(Vec<u8>, Vec<u8>)>,
    taken: usize,
    is_over: bool,
}

fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Read, BrokenChunks> {
    let mut decoder = Decoder::default();
    let (mut data, mut taken) = (Vec::new(), 0);
    for piece in pieces {
        let mut rest = piece;
        loop {
            match decoder.next(&mut rest)? {
                Piece::Data(more) => {
                    assert!(!more.is_empty());
                    data.extend_from_slice(more);
                }
                Piece::More => break assert!(rest.is_empty() && !decoder.is_over()),
                Piece::End => break assert!(decoder.is_over()),
            }
        }
        taken += piece.len() - rest.len();
    }
    let trailers = decoder.trailers().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    Ok(Read { data, trailers, taken, is_over: decoder.is_over() })
}

fn read_whole(body: &[u8]) -> Result<Read, BrokenChunks> {
    read([body])
}

#[test]
fn a_body_ends_with_its_last_line_and_the_bytes_behind_it_are_left() {
    for (body, data) in [
        ("0\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("00005\r\nhello\r\n000\r\n\r\n", "hello"),
        ("A;x=\"y z\"\r\n0123456789\r\n1\r\n!\r\n0;last\r\n\r\n", "0123456789!"),
        ("5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-Empty:\r\n\r\n", "hello"),
    ] {
        let behind = format!("{body}GET / HTTP/1.1\r\n");
        let read = read_whole(behind.as_bytes()).unwrap();
        assert_eq!((read.data, read.taken, read.is_over), (data.into(), body.len(), true), "{body:?}");
        for end in 0..body.len() {
            let read = read_whole(&body.as_bytes()[..end]).unwrap();
            assert_eq!((read.taken, read.is_over), (end, false), "{body:?} {end}");
        }
    }
}

#[test]
fn data_comes_in_pieces_as_long_as_the_bytes_allow() {
    let body = "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    let (mut decoder, mut rest) = (Decoder::default(), body.as_bytes());
    assert_eq!(decoder.next(&mut rest), Ok(Piece::Data(b"hello")));
    assert_eq!(decoder.next(&mut rest), Ok(Piece::Data(b" world")));
    assert_eq!(decoder.next(&mut rest), Ok(Piece::End));
    assert_eq!(decoder.next(&mut b"5\r\n".as_slice()), Ok(Piece::End));
}

#[test]
fn trailers_are_kept_with_names_and_values_trimmed() {
    let read = read_whole(b"0\r\nX-Sum:\t 1 : 2 \r\nX-Empty:\r\nX-SUM: \xe9\r\n\r\n").unwrap();
    let expected: [(&[u8], &[u8]); 3] = [(b"X-Sum", b"1 : 2"), (b"X-Empty", b""), (b"X-SUM", b"\xe9")];
    assert_eq!(read.trailers, expected.map(|(name, value)| (name.to_vec(), value.to_vec())));
}

#[test]
fn any_other_body_is_broken() {
    for body in [
        "\r\n",
        "x",
        "-5",
        "+5",
        "0x5",
        " 5",
        "5 ",
        "5,5",
        "5\n",
        "5\rh",
        ";\r\n",
        "5\r\nhello0",
        "5\r\nhello\n",
        "5\r\nhelloX",
        "4\r\nhello",
        "5\r\nhello\r0",
        "5\r\nhello\r\r",
        "0\r0",
        "0\r\n\r0",
        "0\r\nx: y\rz",
        "0\r\n\n",
        "0\r\n ",
        "0\r\nx\r",
        "0\r\n: y",
        "0\r\nx y",
        "0\r\nx: \0",
        "0\r\nx: y\n",
        "5;a\nb",
        "5;a\rb",
        "5;\0",
        "8000000000000000",
        "10000000000000005",
    ] {
        assert_eq!(read_whole(body.as_bytes()), Err(BrokenChunks), "{body:?}");
    }
}

#[test]
fn lines_and_trailers_have_an_end() {
    let extension = format!("5;{}", "x".repeat(LINE_BYTES_MAX));
    assert_eq!(read_whole(extension.as_bytes()), Err(BrokenChunks));
    assert_eq!(read_whole("0".repeat(LINE_BYTES_MAX + 1).as_bytes()), Err(BrokenChunks));
    let trailers = "x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(TRAILER_BYTES_MAX / 40);
    assert_eq!(read_whole(format!("0\r\n{trailers}").as_bytes()), Err(BrokenChunks));
}

#[test]
fn written_sizes_are_lower_case_hex() {
    for size in [0, 1, 9, 10, 15, 16, 255, 4096, 0xabcdef, usize::MAX] {
        let mut out = Vec::new();
        write_size(size, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("{size:x}\r\n"));
    }
}

proptest! {
    #[test]
    fn pieces_of_any_size_give_the_same_body(cuts in vec(1_usize..9, 0..40), junk in any::<Vec<u8>>()) {
        let body = b"5;a=b\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nX: y\r\nZ:\r\n\r\n";
        let whole = [body.as_slice(), &junk].concat();
        let (mut pieces, mut rest) = (Vec::new(), whole.as_slice());
        for cut in cuts {
            let (piece, others) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = others;
        }
        pieces.push(rest);
        let expected = Read {
            data: b"hello0123456789abcdef".to_vec(),
            trailers: vec![(b"X".to_vec(), b"y".to_vec()), (b"Z".to_vec(), Vec::new())],
            taken: body.len(),
            is_over: true,
        };
        prop_assert_eq!(read(pieces), Ok(expected));
    }

    #[test]
    fn no_bytes_panic(body in any::<Vec<u8>>()) {
        let _ = read_whole(&body);
    }
}
