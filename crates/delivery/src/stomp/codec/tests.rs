//! The codec against examples of the specification, against bytes cut anywhere, and against noise.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Decodes bytes that come in pieces of the given sizes (used in turn).
fn decode(bytes: &[u8], sizes: &[usize]) -> Result<Vec<Frame>, StompError> {
    let mut codec = StompCodec::default();
    let mut src = BytesMut::new();
    let mut frames = Vec::new();
    let mut rest = bytes;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let size = sizes.next().map_or(rest.len(), |size| (*size).clamp(1, rest.len()));
        src.extend_from_slice(&rest[..size]);
        rest = &rest[size..];
        while let Some(frame) = codec.decode(&mut src)? {
            frames.push(frame);
        }
    }
    Ok(frames)
}

fn one(bytes: &[u8]) -> Frame {
    let frames = decode(bytes, &[]).unwrap();
    assert_eq!(frames.len(), 1);
    assert_eq!(decode(bytes, &[1]).unwrap(), frames, "the same if it comes byte by byte");
    frames.into_iter().next().unwrap()
}

fn encode(frame: &Frame) -> BytesMut {
    let mut dst = BytesMut::new();
    StompCodec::default().encode(frame, &mut dst).unwrap();
    dst
}

#[test]
fn heart_beats_between_frames_and_carriage_returns_are_no_part_of_them() {
    let bytes = b"\n\r\n\nRECEIPT\r\nreceipt-id:a\r\n\r\n\0\n\n\r\nMESSAGE\nack:b\n\nbody\0\n";
    for size in 1..20 {
        let frames = decode(bytes, &[size]).unwrap();
        assert_eq!(
            frames,
            [
                Frame::new("RECEIPT").with("receipt-id", "a"),
                Frame::new("MESSAGE").with("ack", "b").body("body"),
            ]
        );
    }
}

#[test]
fn headers_are_unescaped_once_and_the_first_of_a_name_counts() {
    let frame = one(b"MESSAGE\nack:1\na\\cb:1\\n2\\r3\\c4\\\\n\na\\cb:later\nempty:\n\n\0");
    assert_eq!(frame.header("a:b"), Some("1\n2\r3:4\\n"));
    assert_eq!(frame.header("empty"), Some(""));
    // ActiveMQ does not escape names.
    let frame = one(b"MESSAGE\nack:1\na\\tb\\:x\\ty\\\n\n\0");
    assert_eq!(frame.header("a\\tb\\"), Some("x\\ty\\"));
}

#[test]
fn the_first_frames_of_a_connection_have_no_escapes() {
    let frame = one(b"CONNECTED\nsession:a\\cb:c\n\n\0");
    assert_eq!(frame.header("session"), Some("a\\cb:c"));
    let connect = Frame::new("CONNECT").with("passcode", "p:\\w");
    assert_eq!(&encode(&connect)[..], b"CONNECT\npasscode:p:\\w\n\n\0");
}

#[test]
fn a_body_has_a_length_only_if_it_needs_one() {
    assert_eq!(&encode(&Frame::new("SEND").body("{}"))[..], b"SEND\n\n{}\0");
    assert_eq!(&encode(&Frame::new("SEND").body("a\0b"))[..], b"SEND\ncontent-length:3\n\na\0b\0");
    assert_eq!(one(b"MESSAGE\nack:1\ncontent-length:3\n\na\0b\0").body, "a\0b");
    assert_eq!(one(b"MESSAGE\nack:1\ncontent-length:0\n\n\0").body, "");
}

#[test]
fn what_cannot_be_sent_leaves_the_buffer_alone() {
    for frame in [
        Frame::new("CONNECT").with("login", "a\nb"),
        Frame::new("CONNECT").with("login", "a\rb"),
        Frame::new("SEND").with("a\0b", "c"),
        Frame::new("SEND").with("fine", "c").with("a", "\0"),
    ] {
        let mut dst = BytesMut::from("before");
        assert!(StompCodec::default().encode(&frame, &mut dst).is_err());
        assert_eq!(dst, "before");
    }
}

#[test]
fn what_does_not_begin_with_a_frame_is_another_protocol() {
    for bytes in [&b"message\n\n\0"[..], b"\0", b"HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let bytes = [bytes, b"\n"].concat();
        assert!(decode(&bytes, &[]).is_err(), "{bytes:?}");
        assert!(decode(&bytes, &[1]).is_err(), "{bytes:?}");
    }
    assert!(decode(&[b'A'; MAX_COMMAND + 1], &[1]).is_err(), "no line end where a command should be");
}

/// Each is what ActiveMQ makes of a message that somebody sent, or could.
#[test]
fn of_a_frame_that_is_not_sound_the_end_is_found_all_the_same() {
    for (broken, body) in [
        // A text with a property called `content-length`: too short, too long, no number.
        (&b"MESSAGE\ncontent-length:3\nack:1\n\nabcd\0\n"[..], "abcd"),
        (b"MESSAGE\ncontent-length:0\nack:1\n\nabcd\0\n", "abcd"),
        (b"MESSAGE\ncontent-length:9\nack:1\n\none\0\n", "one"),
        (b"MESSAGE\ncontent-length:abc\nack:1\n\ntwo\0\n", "two"),
        (b"MESSAGE\ncontent-length:-1\nack:1\n\nabcd\0\n", "abcd"),
        (b"MESSAGE\ncontent-length:99999999999999999999\nack:1\n\nabcd\0\n", "abcd"),
        // A text with NULs and no length.
        (b"MESSAGE\nack:1\n\nfour\0with nul\0\n", "four"),
        (b"MESSAGE\nack:1\n\nfour\0\0a\nb\0 MESSAGE\n\0\n", "four"),
        // Names with line ends, NULs and escapes, text that is not UTF-8.
        (b"MESSAGE\na:b\nc\rd\\e\0f:x\\cy\0v\nack:1\n\nfive\0\n", "five"),
        (b"MESSAGE\nno colon\nack:1\n\nsix\0\n", "six"),
        (b"MESSAGE\nM\xfcller:\xff\xfe\nack:1\n\nseven\0\n", "seven"),
    ] {
        let bytes = [b"RECEIPT\n\n\0", broken, b"MESSAGE\nack:2\ncontent-length:4\n\nnext\0\n"].concat();
        for size in [1, 7, usize::MAX] {
            let frames = decode(&bytes, &[size]).unwrap();
            assert_eq!(frames.len(), 3, "{:?}", String::from_utf8_lossy(broken));
            assert_eq!((frames[1].header("ack"), frames[1].length), (Some("1"), body.len()));
            assert_eq!(frames[1].body, body);
            assert_eq!((frames[2].header("ack"), &frames[2].body[..]), (Some("2"), &b"next"[..]));
        }
    }
}

#[test]
fn a_length_is_distrusted_when_the_rest_does_not_come() {
    let mut codec = StompCodec::default();
    let mut src = BytesMut::from(&b"MESSAGE\ncontent-length:99\nack:1\n\none\0\n\n"[..]);
    assert!(!codec.awaits_rest());
    assert!(codec.decode(&mut src).unwrap().is_none());
    assert!(codec.awaits_rest());
    codec.distrust_rest(&mut src);
    assert_eq!(codec.decode(&mut src).unwrap().unwrap().body, "one");
    assert!(codec.decode(&mut src).unwrap().is_none() && !codec.awaits_rest());
    codec.distrust_rest(&mut src);
    src.extend_from_slice(b"MESSAGE\nack:2\n\nnext\0");
    assert_eq!(codec.decode(&mut src).unwrap().unwrap().body, "next");
}

/// Too short, too long with frames inside what is kept, at its edge, and in what is thrown away.
#[test]
fn a_large_body_of_a_false_length_loses_its_end_and_the_next_frames_are_read() {
    let next = b"MESSAGE\nack:2\n\nnext\0\nMESSAGE\nack:3\n\nthird\0\n";
    for (said, sent) in [
        (MAX_BODY, MAX_BODY + 9),
        (MAX_BODY + 1, MAX_BODY + 9),
        (MAX_BODY * 2, MAX_BODY * 3),
        (MAX_BODY * 9, 5),
        (MAX_BODY * 9, MAX_BODY - 40),
        (MAX_BODY * 9, MAX_BODY - 5),
        (MAX_BODY * 9, MAX_BODY - 1),
        (MAX_BODY * 9, MAX_BODY),
        (MAX_BODY * 9, MAX_BODY + 1),
        (MAX_BODY * 9, MAX_BODY * 2),
    ] {
        let head = format!("MESSAGE\nack:1\ncontent-length:{said}\n\n");
        let mut bytes = [head.as_bytes(), &vec![b'x'; sent], b"\0\n"].concat();
        // As much as it takes to throw some away.
        while bytes.len() < MAX_BODY + 4096 {
            bytes.extend_from_slice(b"MESSAGE\nack:between\n\n\0\n");
        }
        bytes.extend_from_slice(next);
        for size in [997, 100_000, usize::MAX] {
            let frames = decode(&bytes, &[size]).unwrap();
            let [first, .., second, third] = frames.as_slice() else { panic!("{said} {sent}: {frames:?}") };
            assert_eq!((first.header("ack"), first.body.len()), (Some("1"), sent.min(MAX_BODY)));
            assert!(first.length == sent || first.length > MAX_BODY, "{said} {sent}: {}", first.length);
            assert_eq!((second.header("ack"), &second.body[..]), (Some("2"), &b"next"[..]));
            assert_eq!((third.header("ack"), &third.body[..]), (Some("3"), &b"third"[..]));
        }
    }
}

#[test]
fn a_body_of_its_true_length_may_hold_frames() {
    let inside = b"a\0\nMESSAGE\nack:no\n\nb\0c";
    let head = format!("MESSAGE\nack:1\ncontent-length:{}\n\n", inside.len());
    assert_eq!(&one(&[head.as_bytes(), inside, b"\0"].concat()).body[..], inside);
}

/// The names are of JMS properties, which ActiveMQ 5.17 sends as they are; the order of headers is any.
#[test]
fn line_ends_in_names_never_cost_a_message_its_tag() {
    for headers in [
        "\n\n:99\nexpires:0\nack:ID\\c1\nsubscription:0\n",
        "expires:0\nack:ID\\c1\na\n\nb:99\nsubscription:0\n",
        "q\r\n\r\nr:99\nack:ID\\c1\n",
        "content-length:5\nexpires:0\ncontent-length:7\n\n:99\nack:ID\\c1\n",
        "p\n\ncontent-length:9\nack:ID\\c1\n",
        "m\0n:99\nack:ID\\c1\n",
        "m\0:99\nx:\0\nack:ID\\c1\n",
        "x\0\nMESSAGE\ny:99\nack:ID\\c1\n",
        "ack:ID\\c1\nx\0\nMESSAGE\ny:99\n",
        "ack:ID\\c1\nx\0\nRECEIPT\ny:99\n",
        "ack:ID\\c1\nlast:\0\n",
        "\n\nx\0MESSAGE\n\n\n:99\nack:ID\\c1\n",
    ] {
        for body in ["body", "b\0dy", ""] {
            let broken = format!("MESSAGE\n{headers}\n{body}\0\n");
            let bytes = [b"RECEIPT\n\n\0", broken.as_bytes(), b"MESSAGE\nack:2\n\nnext\0\n"].concat();
            for size in [1, 7, usize::MAX] {
                let frames = decode(&bytes, &[size]).unwrap();
                let tags = frames.iter().filter_map(|frame| frame.header("ack")).collect::<Vec<_>>();
                assert_eq!(tags, ["ID:1", "2"], "{broken:?}");
                assert_eq!(frames.last().unwrap().body, "next", "{broken:?}");
            }
        }
    }
}

#[test]
fn a_frame_within_a_name_is_read_once() {
    let bytes = b"RECEIPT\n\n\0MESSAGE\ncontent-length:5\nack:1\nzz\0\nMESSAGE\nack:fake\n\n:v\nmessage-id:x\n\nby\0te\0\n\
                  MESSAGE\nack:2\n\nnext\0\n";
    for size in [1, 7, usize::MAX] {
        let frames = decode(bytes, &[size]).unwrap();
        let tags: Vec<_> = frames.iter().filter_map(|frame| frame.header("ack")).collect();
        assert_eq!(tags, ["1", "fake", "2"]);
    }
}

/// Texts with NULs in them have no length: what follows the NUL is read as frames, and the next ones after
/// it are the broker's again.
#[test]
fn what_is_left_of_a_text_swallows_no_frame() {
    for rest in [
        "MESSAGE",
        "MESSAGE\n",
        "MESSAGE\n\n",
        "MESSAGE\nack:x\n",
        "MESSAGE\nack:x\n\n",
        "MESSAGE\nack:x\ny",
        "RECEIPT\n",
        "RECEIPT\n\n",
        "ERROR\na:b\n",
        "\n\nMESSAGE\n\n\n\n",
        "QUITE\nsomething:else\n",
        "MESSAGE\nack:x\ncontent-length:9999999\n",
    ] {
        for beats in ["", "\n", "\n\n\n"] {
            let bytes = format!(
                "MESSAGE\nack:1\n\ntext\0{rest}\0{beats}RECEIPT\nreceipt-id:r\n\n\0{beats}\
                 MESSAGE\nack:2\n\nnext\0\n"
            );
            for size in [1, 7, usize::MAX] {
                let frames = decode(bytes.as_bytes(), &[size]).unwrap();
                assert_eq!(frames[0].header("ack"), Some("1"));
                let last: Vec<_> = frames.iter().rev().take(2).collect();
                assert_eq!(last[1].header("receipt-id"), Some("r"), "{bytes:?}: {frames:?}");
                assert_eq!((last[0].header("ack"), &last[0].body[..]), (Some("2"), &b"next"[..]));
            }
        }
    }
}

#[test]
fn a_body_over_the_limit_loses_its_end_and_the_next_frame_is_read() {
    let large = vec![b'x'; MAX_BODY * 2];
    let sized = format!("MESSAGE\nack:1\ncontent-length:{}\n\n", large.len());
    for head in [sized.as_bytes(), b"MESSAGE\nack:1\n\n"] {
        let bytes = [head, &large, b"\0\nMESSAGE\nack:2\n\nnext\0"].concat();
        for size in [1000, 100_000, usize::MAX] {
            let frames = decode(&bytes, &[size]).unwrap();
            assert_eq!(frames.len(), 2);
            assert_eq!((frames[0].length, frames[0].body.len()), (large.len(), MAX_BODY));
            assert_eq!(frames[0].header("ack"), Some("1"));
            assert!(frames[1].length == 4 && frames[1].body == "next");
        }
    }
    let exact = [b"MESSAGE\nack:1\n\n", &large[..MAX_BODY], b"\0"].concat();
    assert_eq!(one(&exact).body.len(), MAX_BODY, "a body of just the limit is whole");
}

#[test]
fn headers_over_the_limit_are_dropped_but_never_the_tag() {
    let long = "v".repeat(MAX_HEADERS * 3);
    let many: String = (0..20_000).map(|n| format!("h{n}:v\n")).collect();
    for noise in [format!("big:{long}\n"), many] {
        let bytes =
            format!("MESSAGE\nfirst:1\n{noise}ack:t\ncontent-length:2\nlast:2\n\nab\0\nRECEIPT\n\n\0");
        for size in [999, 100_000, usize::MAX] {
            let frames = decode(bytes.as_bytes(), &[size]).unwrap();
            assert_eq!(frames.len(), 2);
            assert_eq!(frames[0].header("first"), Some("1"));
            assert_eq!(frames[0].header("ack"), Some("t"));
            assert_eq!(frames[0].body, "ab");
            assert!(frames[0].headers.len() < MAX_HEADERS / HEADER_COST + KEPT.len());
        }
    }
}

fn frames() -> impl Strategy<Value = Vec<Frame>> {
    let text = "[^\0]{0,12}";
    let body = prop_oneof![vec(any::<u8>(), 0..40), "[a-z{}\": ]{0,30}".prop_map(String::into_bytes)];
    let frame = ("SEND|MESSAGE|ACK|[A-Z]{1,12}", vec((text, text), 0..5), body).prop_map(
        |(command, headers, body)| {
            let headers = headers.into_iter().filter(|(name, _)| name != "content-length");
            let headers = headers.map(|(name, value)| match unescaped(&command) {
                true => (keep_plain(&name).replace(':', ""), keep_plain(&value)),
                false => (name, value),
            });
            let tag = (command == "MESSAGE").then(|| ("ack".to_owned(), "1".to_owned()));
            Frame { headers: tag.into_iter().chain(headers).collect(), ..Frame::new(&command).body(body) }
        },
    );
    vec(frame, 0..6)
}

fn keep_plain(text: &str) -> String {
    text.replace(['\r', '\n'], "")
}

proptest! {
    #[test]
    fn what_was_encoded_is_decoded_however_it_is_cut(
        frames in frames(),
        sizes in vec(1_usize..50, 1..10),
        beats in 0_usize..3,
    ) {
        let mut bytes = BytesMut::new();
        for frame in &frames {
            StompCodec::default().encode(frame, &mut bytes).unwrap();
            bytes.extend_from_slice(&b"\n\r\n"[..beats]);
        }
        let mut decoded = decode(&bytes, &sizes).unwrap();
        for frame in &mut decoded {
            frame.headers.retain(|(name, _)| name != "content-length");
        }
        prop_assert_eq!(decoded.len(), frames.len());
        for (decoded, frame) in decoded.iter().zip(&frames) {
            prop_assert!(decoded == frame, "{:?} {:?}", decoded, frame);
        }
    }

    #[test]
    fn noise_is_an_error_or_frames_and_the_same_however_it_is_cut(
        // Mostly bytes that mean something, so that all states are reached.
        bytes in vec(prop_oneof![
            Just(b"MESSAGE\n".to_vec()), Just(b"content-length:3\n".to_vec()), Just(b"\n".to_vec()),
            Just(b"ack:1\n".to_vec()), Just(b"\0\n".to_vec()), Just(b"RECEIPT\n".to_vec()),
            Just(vec![0]), Just(b"\\c".to_vec()), vec(any::<u8>(), 0..6),
        ], 0..40),
        sizes in vec(1_usize..9, 1..6),
    ) {
        let bytes = bytes.concat();
        match (decode(&bytes, &[]), decode(&bytes, &sizes)) {
            (Ok(whole), Ok(cut)) => prop_assert!(whole == cut),
            (whole, cut) => prop_assert!(whole.is_err() && cut.is_err()),
        }
    }
}
