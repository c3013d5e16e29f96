//! The filter against frames cut anywhere, against tables of any depth, and against noise.

use lapin::protocol::basic::{AMQPProperties, gen_properties, parse_properties};
use lapin::types::{AMQPValue, FieldTable};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn on(channel: u8, kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind, 0, channel];
    frame.put_u32(payload.len().try_into().unwrap());
    [&frame, payload, &[END]].concat()
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    on(7, kind, payload)
}

/// The header frame of a message.
fn announced(channel: u8, size: usize, properties: &[u8]) -> Vec<u8> {
    let mut header = vec![0, 60, 0, 0];
    header.put_u64(size as u64);
    on(channel, HEADER, &[&header, properties].concat())
}

/// A message of five bytes with these properties.
fn of_five(properties: &[u8]) -> Vec<u8> {
    announced(7, 5, properties)
}

fn encoded(properties: &AMQPProperties) -> Vec<u8> {
    gen_properties(properties)(Vec::new().into()).unwrap().into_inner().0
}

/// What passes of bytes that come in pieces of the given sizes (used in turn).
fn passed(bytes: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut filter = Filter::default();
    let mut to = BytesMut::new();
    let mut rest = bytes;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let size = sizes.next().map_or(rest.len(), |size| (*size).clamp(1, rest.len()));
        filter.pass(&rest[..size], &mut to);
        rest = &rest[size..];
    }
    to.to_vec()
}

/// The headers in the one frame that passes.
fn headers(bytes: &[u8]) -> Option<FieldTable> {
    let passed = passed(bytes, &[]);
    assert_eq!(passed[..3], bytes[..3]);
    let properties = HEAD + BEFORE_SIZE + 8;
    assert_eq!(passed[HEAD..properties], bytes[HEAD..properties]);
    let properties = &passed[properties..passed.len() - 1];
    let (rest, properties) = parse_properties(properties).unwrap();
    assert!(rest.is_empty());
    properties.headers().clone()
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

/// Tables, or arrays, each within the one before it.
fn nested(depth: usize, array: bool) -> Vec<u8> {
    let mut inner = vec![b'V'];
    for _ in 0..depth {
        let mut outer = vec![if array { b'A' } else { b'F' }];
        let name: &[u8] = if array { b"" } else { b"\x01n" };
        outer.put_u32((name.len() + inner.len()).try_into().unwrap());
        inner = [&outer, name, &inner].concat();
    }
    inner
}

/// The headers: one with this value, and then ours.
fn before_ours(value: &[u8]) -> Vec<u8> {
    let mut table = [b"\x05other", value].concat();
    table.put_slice(b"\x0douthaul-queueS\x00\x00\x00\x04fast");
    let mut properties = vec![0x20, 0];
    properties.put_u32(table.len().try_into().unwrap());
    [properties, table].concat()
}

#[test]
fn of_the_properties_only_our_headers_pass() {
    let mut table = FieldTable::default();
    for (name, value) in [
        ("a", AMQPValue::Boolean(true)),
        ("b", AMQPValue::ShortShortInt(1)),
        ("c", AMQPValue::ShortShortUInt(1)),
        ("d", AMQPValue::ShortInt(1)),
        ("e", AMQPValue::ShortUInt(1)),
        ("f", AMQPValue::LongInt(1)),
        ("g", AMQPValue::LongUInt(1)),
        ("h", AMQPValue::LongLongInt(1)),
        ("i", AMQPValue::Float(1.0)),
        ("j", AMQPValue::Double(1.0)),
        ("k", AMQPValue::Timestamp(1)),
        ("l", AMQPValue::FieldTable(FieldTable::default())),
        ("m", AMQPValue::ByteArray(vec![1, 2].into())),
        ("n", AMQPValue::Void),
        ("o", text("outhaul-queue")),
        ("outhaul-queue", text("fast")),
        ("outhaul-message-id", text("id")),
        ("z", AMQPValue::Void),
    ] {
        table.insert(name.into(), value);
    }
    let all = AMQPProperties::default()
        .with_content_type("application/json".into())
        .with_content_encoding("gzip".into())
        .with_headers(table)
        .with_message_id("id".into());
    let mut ours = FieldTable::default();
    ours.insert("outhaul-queue".into(), text("fast"));
    ours.insert("outhaul-message-id".into(), text("id"));
    assert_eq!(headers(&of_five(&encoded(&all))), Some(ours));

    let none = AMQPProperties::default().with_content_type("text/plain".into());
    assert_eq!(headers(&of_five(&encoded(&none))), None);
    let mut number = FieldTable::default();
    number.insert("outhaul-queue".into(), AMQPValue::LongInt(7));
    assert_eq!(headers(&of_five(&encoded(&AMQPProperties::default().with_headers(number)))), None);
}

#[test]
fn what_the_library_cannot_read_does_not_reach_it() {
    let mut ours = FieldTable::default();
    ours.insert("outhaul-queue".into(), text("fast"));
    for value in [nested(1000, false), nested(1000, true), nested(8000, false), nested(10_000, true)] {
        assert_eq!(headers(&of_five(&before_ours(&value))), Some(ours.clone()));
    }
    // Beyond what is looked at, and of a kind whose length is not known: what comes after it is not found.
    assert_eq!(headers(&of_five(&before_ours(&nested(26_000, true)))), None);
    assert_eq!(headers(&of_five(&before_ours(b"?"))), None);
    // Text that is not UTF-8, in a header's name and in a property.
    assert_eq!(headers(&of_five(b"\x20\x00\x00\x00\x00\x03\x01\xffV")), None);
    assert_eq!(headers(&of_five(b"\x80\x00\x01\xff")), None);
    let deliver = [&DELIVER[..], b"\x03tag\0\0\0\0\0\0\0\x09\x01", b"\x01\xff\x02\xfe\xff"].concat();
    let expected = [&DELIVER[..], b"\x03tag\0\0\0\0\0\0\0\x09\x01", b"\0\0"].concat();
    assert_eq!(passed(&frame(METHOD, &deliver), &[]), frame(METHOD, &expected));
}

#[test]
fn a_body_over_the_limit_loses_its_end_and_its_length_is_told() {
    let limit = usize::try_from(MAX_BODY).unwrap();
    let large = vec![b'x'; limit];
    let small = [announced(1, 5, &[0, 0]), on(1, BODY, b"small")].concat();
    let other = [announced(2, 5, &[0, 0]), on(2, BODY, b"other")].concat();
    let whole =
        [announced(1, limit, &[0, 0]), on(1, BODY, &large[1..]), on(1, BODY, b"y"), small.clone()].concat();
    assert!(passed(&whole, &[]) == whole, "just the limit");

    let sent = [
        announced(1, 2 * limit + 5, &[0, 0]),
        on(1, BODY, &large[1..]),
        on(1, BODY, b"yzz"),
        on(1, BODY, b"zzz"),
        // Another channel's message in between.
        other.clone(),
        on(1, BODY, &large),
        small.clone(),
    ];
    let length = b"\x20\x00\x00\x00\x00\x1b\x0eouthaul-lengthS\x00\x00\x00\x072097157";
    let expected =
        [announced(1, limit, length), on(1, BODY, &large[1..]), on(1, BODY, b"y"), other, small].concat();
    for sizes in [&[][..], &[1000], &[1, 7]] {
        let passed = passed(&sent.concat(), sizes);
        assert!(passed == expected, "{} bytes passed, not {}", passed.len(), expected.len());
    }
}

#[test]
fn everything_else_passes_as_it_is() {
    let large = vec![HEADER; MAX_LOOK + 1];
    for frame in [
        b"AMQP\0\0\x09\x01".to_vec(),
        frame(METHOD, &[0, 60, 0, 50, 1, 2, 3]),
        frame(METHOD, &DELIVER),
        frame(METHOD, &large),
        frame(HEADER, &[0, 60]),
        frame(BODY, b"a body"),
        frame(BODY, &large),
        frame(8, b""),
    ] {
        assert!(passed(&frame, &[]) == frame, "{:?}", &frame[..8]);
        let twice = [&frame[..], &frame].concat();
        // What comes after another protocol's first bytes is of no account.
        if frame[0] != b'A' {
            assert!(passed(&twice, &[]) == twice, "{:?}", &frame[..8]);
        }
    }
    let broken = [&frame(8, b"")[..7], &[0]].concat();
    assert_eq!(passed(&broken, &[]), broken, "the library sees that a frame does not end");
}

proptest! {
    #[test]
    fn any_frames_pass_the_same_however_they_are_cut(
        frames in vec((0..4_u8, vec(any::<u8>(), 0..60)), 0..6),
        sizes in vec(1_usize..20, 1..6),
    ) {
        let bytes: Vec<_> = frames.iter().flat_map(|(kind, payload)| frame(*kind, payload)).collect();
        prop_assert_eq!(passed(&bytes, &sizes), passed(&bytes, &[]));
    }

    #[test]
    fn whatever_the_properties_are_the_library_can_read_what_passes(
        properties in vec(prop_oneof![
            Just(vec![0x20, 0, 0, 0, 0, 40]), Just(b"\x0douthaul-queueS\x00\x00\x00\x01".to_vec()),
            Just(b"\x01nF\x00\x00\x00\x05".to_vec()), vec(any::<u8>(), 0..6),
        ], 0..12),
    ) {
        headers(&of_five(&properties.concat()));
    }
}
