//! Headers, and the checksums that tell a whole record from a torn or a damaged one.
//!
//! Both headers are 64 bytes, little-endian, and end with the crc32c of the 60 bytes before. Magic, version and
//! checksum keep their place in every version, so that an old program can say "newer" instead of "damaged".

use domain::Timestamp;

use super::BLOCK;
use crate::operation::{BadLayout, Fields};
use crate::state::Window;

/// The version of all layouts on the disk: headers, operations, decisions, snapshots. The second has marks, and snapshots
/// with the pairing. What the first wrote reads alike in the second.
pub const VERSION: u32 = 2;
pub const OLDEST_VERSION: u32 = 1;
pub const HEADER: usize = 64;

/// Stands behind the operations of every record. Without it the last sector of a good record could have a single bit
/// that is not zero, and a torn write that lost this sector would look like rot.
pub const TRAILER: [u8; 16] = *b"end of the batch";

const SEGMENT_MAGIC: [u8; 8] = *b"BURSPOTW";
const RECORD_MAGIC: [u8; 8] = *b"BURSPOTR";

/// Why 64 bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing was ever written here.
    Blank,
    Magic,
    Checksum,
    Newer(u32),
}

impl std::fmt::Display for Flaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Blank => f.write_str("nothing is written there"),
            Self::Magic => f.write_str("there is no header"),
            Self::Checksum => f.write_str("the header's checksum is wrong"),
            Self::Newer(version) => write!(f, "the format is {version}"),
        }
    }
}

/// Writes the crc32c of the first 60 bytes of a header into its last four.
fn put_checksum(bytes: &mut [u8; HEADER]) {
    let checksum = crc32c::crc32c(&bytes[..HEADER - 4]);
    bytes[HEADER - 4..].copy_from_slice(&checksum.to_le_bytes());
}

fn check(bytes: &[u8; HEADER], magic: &[u8; 8]) -> Result<(), Flaw> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Err(Flaw::Blank);
    }
    if bytes[..8] != *magic {
        return Err(Flaw::Magic);
    }
    let [.., a, b, c, d] = *bytes;
    if crc32c::crc32c(&bytes[..HEADER - 4]) != u32::from_le_bytes([a, b, c, d]) {
        return Err(Flaw::Checksum);
    }
    let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    if (OLDEST_VERSION..=VERSION).contains(&version) { Ok(()) } else { Err(Flaw::Newer(version)) }
}

/// Stands at the beginning of a segment, in a block of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// A random number that all files of one log share.
    pub log_id: u64,
    pub number: u64,
    /// The length of the whole file. It never changes, so a shorter file was cut.
    pub bytes: u64,
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.log_id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.bytes.to_le_bytes());
        put_checksum(&mut bytes);
        bytes
    }

    pub fn decode(bytes: &[u8; HEADER]) -> Result<Self, Flaw> {
        check(bytes, &SEGMENT_MAGIC)?;
        let read = |fields: &mut Fields<'_>| -> Result<Self, BadLayout> {
            Ok(Self { log_id: fields.u64()?, number: fields.u64()?, bytes: fields.u64()? })
        };
        read(&mut Fields::of(&bytes[16..])).map_err(|_| Flaw::Magic)
    }
}

/// What stands before the operations of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The bytes of the operations and the trailer; the rest of the last block is zero.
    pub length: u32,
    /// Batches are numbered from 1 without gaps.
    pub sequence: u64,
    pub log_id: u64,
    pub window: Window,
    pub count: u32,
    /// The crc32c of the decisions, one byte each, so that a recovery that decides otherwise is noticed.
    pub decisions: u32,
    /// The crc32c of the operations and the trailer.
    pub checksum: u32,
}

impl RecordHeader {
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&RECORD_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.log_id.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.window.time.micros().to_le_bytes());
        bytes[40..48].copy_from_slice(&self.window.horizon.micros().to_le_bytes());
        bytes[48..52].copy_from_slice(&self.count.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.decisions.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.checksum.to_le_bytes());
        put_checksum(&mut bytes);
        bytes
    }

    pub fn decode(bytes: &[u8; HEADER]) -> Result<Self, Flaw> {
        check(bytes, &RECORD_MAGIC)?;
        let read = |fields: &mut Fields<'_>| -> Result<Self, BadLayout> {
            Ok(Self {
                length: fields.u32()?,
                sequence: fields.u64()?,
                log_id: fields.u64()?,
                window: Window {
                    time: Timestamp::from_micros(fields.i64()?),
                    horizon: Timestamp::from_micros(fields.i64()?),
                },
                count: fields.u32()?,
                decisions: fields.u32()?,
                checksum: fields.u32()?,
            })
        };
        read(&mut Fields::of(&bytes[12..])).map_err(|_| Flaw::Magic)
    }

    /// The bytes that the record takes in its segment, with the padding of its last block.
    pub fn blocks_bytes(&self) -> u64 {
        (HEADER as u64 + u64::from(self.length)).next_multiple_of(BLOCK as u64)
    }
}

/// The bit whose flip makes a good header of this one, if there is one. A torn write loses whole sectors, so a single
/// wrong bit is rot.
pub fn one_bit_from_header(bytes: &[u8; HEADER]) -> Option<usize> {
    (0..HEADER * 8).find(|bit| {
        let mut bytes = *bytes;
        bytes[bit / 8] ^= 1 << (bit % 8);
        RecordHeader::decode(&bytes).is_ok()
    })
}

/// The bit whose flip turns one crc32c of so many bytes into the other, if there is one.
pub fn one_bit_from_checksum(length: usize, expected: u32, found: u32) -> Option<usize> {
    const POLYNOMIAL: u32 = 0x82f6_3b78; // crc32c, reflected
    let wanted = expected ^ found;
    // The checksum is linear: a flipped bit changes it by the remainder of that bit alone. The loop goes back from the
    // last bit, and one shift gives the remainder of the bit before.
    let mut remainder = 1_u32;
    for back in 0..length * 8 {
        remainder = (remainder >> 1) ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 };
        if remainder == wanted {
            let (byte, bit) = (length - 1 - back / 8, 7 - back % 8);
            return Some(byte * 8 + bit);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> RecordHeader {
        RecordHeader {
            length: 96,
            sequence: 77,
            log_id: 0x1234_5678_9abc_def0,
            window: Window { time: Timestamp::from_micros(9), horizon: Timestamp::from_micros(-1) },
            count: 3,
            decisions: 5,
            checksum: 6,
        }
    }

    #[test]
    fn headers_read_back_and_a_flipped_bit_is_found() {
        let bytes = record().encode();
        assert_eq!(RecordHeader::decode(&bytes), Ok(record()));
        for bit in 0..HEADER * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(RecordHeader::decode(&flipped).is_err());
            assert_eq!(one_bit_from_header(&flipped), Some(bit));
        }
        assert_eq!(one_bit_from_header(&[7; HEADER]), None);
    }

    #[test]
    fn the_flipped_bit_of_a_payload_is_found() {
        let payload: Vec<u8> = (0..200_u8).collect();
        let good = crc32c::crc32c(&payload);
        for bit in 0..payload.len() * 8 {
            let mut flipped = payload.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(one_bit_from_checksum(payload.len(), good, crc32c::crc32c(&flipped)), Some(bit));
        }
        assert_eq!(one_bit_from_checksum(payload.len(), good, crc32c::crc32c(&payload[..100])), None);
    }

    #[test]
    fn a_newer_format_says_so() {
        let header = SegmentHeader { log_id: 1, number: 2, bytes: 3 };
        let mut bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        bytes[8] = 1;
        put_checksum(&mut bytes);
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header), "the version before");
        bytes[8] = 3;
        put_checksum(&mut bytes);
        assert_eq!(SegmentHeader::decode(&bytes), Err(Flaw::Newer(3)));
        assert_eq!(SegmentHeader::decode(&[0; HEADER]), Err(Flaw::Blank));
    }
}
