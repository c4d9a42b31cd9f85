//! Bytes as tokens: token b is byte b, and 256 separates documents.
//!
//! A document ends with an empty line. The newline that directly follows another newline is
//! written as the separator, so text and tokens have one length, a window of tokens needs nothing
//! but the bytes in and directly before it, and decoding gives back the exact text.

/// The token between two documents.
pub const SEPARATOR: u32 = 256;

/// The tokens of `text`, which follows the byte `before` (if any).
pub fn encode_after(before: Option<u8>, text: &[u8]) -> Vec<u32> {
    let mut before = before;
    text.iter()
        .map(|&byte| {
            let separates = byte == b'\n' && before == Some(b'\n');
            before = Some(byte);
            if separates { SEPARATOR } else { u32::from(byte) }
        })
        .collect()
}

/// The tokens of `text` from its beginning.
pub fn encode(text: &[u8]) -> Vec<u32> {
    encode_after(None, text)
}

/// The bytes that `tokens` spell; tokens outside of the vocabulary spell nothing.
pub fn decode(tokens: &[u32]) -> Vec<u8> {
    tokens
        .iter()
        .filter_map(
            |&token| if token == SEPARATOR { Some(b'\n') } else { u8::try_from(token).ok() },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_line_separates() {
        assert_eq!(encode(b"a\n\nb\n"), [97, 10, SEPARATOR, 98, 10]);
        assert_eq!(encode_after(Some(b'\n'), b"\nb"), [SEPARATOR, 98]);
        assert_eq!(decode(&[97, 9999, SEPARATOR]), b"a\n");
    }

    proptest! {
        #[test]
        fn decoding_gives_the_text_back(text: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&text)), text);
        }

        #[test]
        fn windows_are_parts_of_the_whole(text in "[a\n]{2,40}", cut in 1usize..40) {
            let text = text.as_bytes();
            let cut = cut.min(text.len() - 1);
            let window = encode_after(Some(text[cut - 1]), &text[cut..]);
            prop_assert_eq!(&encode(text)[cut..], &window[..]);
        }
    }
}
