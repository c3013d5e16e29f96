//! What the client library gets to read of messages. It reads all of a stranger's properties, and cannot
//! bear some: text that is not UTF-8 ends the connection, tables within tables by the hundred end the
//! process, and so may bodies that do not fit into memory. So these frames are written anew, with nothing in
//! them but what Outhaul looks at.

use std::collections::HashMap;

use bytes::{BufMut, BytesMut};

use super::properties;

#[cfg(test)]
mod tests;

/// The kind of a frame, its channel, the size of its payload. After that comes one byte that ends it.
const HEAD: usize = 7;
/// A frame with a method in it.
const METHOD: u8 = 1;
/// A frame with the size and the properties of a message.
const HEADER: u8 = 2;
/// A frame with a part of a message's body.
const BODY: u8 = 3;
/// What ends every frame.
const END: u8 = 0xce;
/// How the method begins that hands out a message.
const DELIVER: [u8; 4] = [0, 60, 0, 60];
/// As much of a payload as is looked at; ours have a few hundred bytes.
const MAX_LOOK: usize = 64 * 1024;

/// Longer bodies are cut: nothing of ours is near this long, so they only go to the parking queue.
const MAX_BODY: u64 = 1024 * 1024;
/// A class and a weight come before a message's size.
const BEFORE_SIZE: usize = 4;

/// Where in the broker's stream of frames the reader is.
#[derive(Default)]
pub(super) struct Filter {
    step: Step,
    /// The beginning of the present frame, if it is to be written anew.
    frame: Vec<u8>,
    /// By channel: what may still pass of a body that is cut.
    cut: HashMap<[u8; 2], u64>,
}

#[derive(Clone, Copy, Default)]
enum Step {
    #[default]
    Head,
    /// What is left of a frame that passes, and then of it that does not.
    Pass(u64, u64),
    /// What is left of a frame that does not pass.
    Drop(u64),
    /// What is left of a frame that is looked at.
    Look(u64),
}

impl Filter {
    /// Reads on, and writes what the library may read.
    pub(super) fn pass(&mut self, mut bytes: &[u8], to: &mut BytesMut) {
        while !bytes.is_empty() {
            match self.step {
                Step::Head => {
                    self.frame.extend_from_slice(cut(&mut bytes, (HEAD - self.frame.len()) as u64));
                    if self.frame.len() == HEAD {
                        self.begin(to);
                    }
                }
                Step::Pass(left, drop) => {
                    let piece = cut(&mut bytes, left);
                    to.put_slice(piece);
                    self.step = match (left - piece.len() as u64, drop) {
                        (0, 0) => Step::Head,
                        (0, drop) => {
                            to.put_u8(END);
                            Step::Drop(drop)
                        }
                        (left, drop) => Step::Pass(left, drop),
                    };
                }
                Step::Drop(left) => {
                    self.step = match left - cut(&mut bytes, left).len() as u64 {
                        0 => Step::Head,
                        left => Step::Drop(left),
                    };
                }
                Step::Look(left) => {
                    let piece = cut(&mut bytes, left);
                    match (left - piece.len() as u64, piece.split_last()) {
                        (0, Some((end, piece))) => {
                            self.keep(piece);
                            self.rewrite(*end, to);
                            self.frame.clear();
                            self.step = Step::Head;
                        }
                        (left, _) => {
                            self.keep(piece);
                            self.step = Step::Look(left);
                        }
                    }
                }
            }
        }
    }

    /// Decides what becomes of a frame whose head was read.
    fn begin(&mut self, to: &mut BytesMut) {
        let kind = self.frame[0];
        let size = self.frame[3..].iter().fold(0, |size, byte| size << 8 | u64::from(*byte));
        if kind == HEADER || (kind == METHOD && size <= MAX_LOOK as u64) {
            self.step = Step::Look(size + 1);
            return;
        }
        let passes = match self.cut.get_mut(&channel(&self.frame)) {
            Some(room) if kind == BODY => {
                let passes = size.min(*room);
                *room -= passes;
                passes
            }
            _ => size,
        };
        self.step = if passes == size {
            to.put_slice(&self.frame);
            Step::Pass(size + 1, 0)
        } else if passes > 0 {
            put_head(&self.frame, passes, to);
            Step::Pass(passes, size - passes + 1)
        } else {
            Step::Drop(size + 1)
        };
        self.frame.clear();
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = HEAD + MAX_LOOK - self.frame.len();
        self.frame.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    /// Writes a frame without what nobody looks at. One that is not understood stays as it is: it is the
    /// broker's own, and the library will say what is wrong with it.
    fn rewrite(&mut self, end: u8, to: &mut BytesMut) {
        let (head, payload) = self.frame.split_at(HEAD);
        let anew = match head[0] {
            HEADER => header(payload).map(|(anew, size)| {
                self.cut.remove(&channel(head));
                if size > MAX_BODY {
                    self.cut.insert(channel(head), MAX_BODY);
                }
                anew
            }),
            _ if payload.starts_with(&DELIVER) => deliver(payload),
            _ => None,
        };
        let payload = anew.as_deref().unwrap_or(payload);
        put_head(head, payload.len() as u64, to);
        to.put_slice(payload);
        to.put_u8(end);
    }
}

fn channel(head: &[u8]) -> [u8; 2] {
    [head[1], head[2]]
}

/// The head of a frame that has another size now.
fn put_head(head: &[u8], size: u64, to: &mut BytesMut) {
    to.put_slice(&head[..3]);
    to.put_u32(u32::try_from(size).expect("it only became shorter"));
}

/// Takes so many bytes, or what there is.
fn cut<'a>(bytes: &mut &'a [u8], most: u64) -> &'a [u8] {
    let count = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
    bytes.split_off(..count).unwrap_or_default()
}

/// Without the exchange and the routing key, which need not be UTF-8 either.
fn deliver(payload: &[u8]) -> Option<Vec<u8>> {
    // Before them: the consumer's tag, the message's tag, whether it comes again.
    let tag = usize::from(*payload.get(DELIVER.len())?);
    let kept = payload.get(..DELIVER.len() + 1 + tag + 9)?;
    Some([kept, &[0, 0]].concat())
}

/// With the size of what passes of the body and the properties of ours alone; and the body's true size.
fn header(payload: &[u8]) -> Option<(Vec<u8>, u64)> {
    let (before, rest) = payload.split_at_checked(BEFORE_SIZE)?;
    let (size, properties) = rest.split_first_chunk()?;
    let size = u64::from_be_bytes(*size);
    let mut anew = before.to_vec();
    anew.put_u64(size.min(MAX_BODY));
    properties::rewrite(properties, (size > MAX_BODY).then_some(size), &mut anew);
    Some((anew, size))
}
