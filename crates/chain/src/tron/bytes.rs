//! Protobuf as java-tron reads it: a field of a wrong wire type is unknown, not an error.
//!
//! Anybody can send a transaction with such a field, and the chain takes it. A reader that refused it would stop at its block.

/// A field's number, and what it holds.
enum Value<'a> {
    Number(u64),
    Text(&'a [u8]),
    Other,
}

/// A message has no more fields than bytes, and groups nest no deeper than this.
const MOST_NESTED: usize = 100;

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for place in 0..10 {
        let (first, behind) = rest.split_first()?;
        *rest = behind;
        // Bits beyond the 64th are lost, as in Java.
        number |= u64::from(first & 0x7f).checked_shl(place * 7).unwrap_or(0);
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(taken)
}

/// The fields of a message in their order. `None`: these bytes are no message.
fn fields(bytes: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let (mut rest, mut fields, mut open) = (bytes, Vec::new(), Vec::new());
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let (number, value) = (
            tag >> 3,
            match tag & 7 {
                0 => Value::Number(varint(&mut rest)?),
                1 => take(&mut rest, 8).map(|_| Value::Other)?,
                2 => {
                    let length = usize::try_from(varint(&mut rest)?).ok()?;
                    Value::Text(take(&mut rest, length)?)
                }
                3 if open.len() < MOST_NESTED => {
                    open.push(tag >> 3);
                    continue;
                }
                4 if open.pop() == Some(tag >> 3) => continue,
                5 => take(&mut rest, 4).map(|_| Value::Other)?,
                _ => return None,
            },
        );
        // What is inside a group belongs to the group, which nobody knows.
        if open.is_empty() {
            fields.push((number, value));
        }
    }
    open.is_empty().then_some(fields)
}

/// A field that holds a message: all that have its number, one after the other, which is how protobuf joins them.
pub(super) fn message(bytes: &[u8], number: u64) -> Option<Vec<u8>> {
    let mut joined = Vec::new();
    for (found, value) in fields(bytes)? {
        if let (true, Value::Text(text)) = (found == number, value) {
            joined.extend_from_slice(text);
        }
    }
    Some(joined)
}

/// A field that holds bytes: the last one. The inner `None`: there is none.
pub(super) fn text(bytes: &[u8], number: u64) -> Option<Option<&[u8]>> {
    let mut from_the_end = fields(bytes)?.into_iter().rev().filter_map(|(found, value)| match value {
        Value::Text(text) if found == number => Some(text),
        Value::Text(_) | Value::Number(_) | Value::Other => None,
    });
    Some(from_the_end.next())
}

/// A field that holds a number: the last one, or zero.
pub(super) fn number(bytes: &[u8], number: u64) -> Option<u64> {
    let mut from_the_end = fields(bytes)?.into_iter().rev().filter_map(|(found, value)| match value {
        Value::Number(value) if found == number => Some(value),
        Value::Text(_) | Value::Number(_) | Value::Other => None,
    });
    Some(from_the_end.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_field_of_a_wrong_wire_type_is_passed_over() {
        // 1 as bytes, 1 as a number, 1 as four bytes, a group with a 1 inside, 2 as bytes twice.
        let bytes = [
            &[0x0a, 1, b'x'][..],
            &[0x08, 7],
            &[0x0d, 0, 0, 0, 0],
            &[0x1b, 0x08, 9, 0x1c],
            &[0x12, 1, b'a', 0x12, 1, b'b'],
        ]
        .concat();
        assert_eq!(number(&bytes, 1), Some(7));
        assert_eq!(text(&bytes, 1), Some(Some(&b"x"[..])));
        assert_eq!(text(&bytes, 2), Some(Some(&b"b"[..])), "the last");
        assert_eq!(message(&bytes, 2), Some(b"ab".to_vec()), "joined");
        assert_eq!((number(&bytes, 5), text(&bytes, 5)), (Some(0), Some(None)));
    }

    #[test]
    fn what_is_no_message_is_none() {
        for bad in [&[0x0a, 5, 1][..], &[0x08], &[0x0f], &[0x0b], &[0x0c], &[0x0b, 0x14], &[0x80; 11]] {
            assert_eq!(number(bad, 1), None, "{bad:?}");
        }
        let minus_one = [&[0x08][..], &[0xff; 9], &[1]].concat();
        assert_eq!(number(&minus_one, 1), Some(u64::MAX));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop((number(&bytes, 1), text(&bytes, 2).map(|text| text.map(<[u8]>::len)), message(&bytes, 3)));
        }
    }
}
