//! Rates and sizes as people write them: `100mbit`, `2gib`.
//!
//! Rates follow `tc(8)`: `bit` counts bits, `bps` counts **bytes**, so `2mbps` is two megabytes a
//! second and `16mbit` the same. Sizes count bytes: `kb mb gb tb` are powers of 1000, `kib mib gib
//! tib` and the single letters `k m g t` powers of 1024. A bare number is bits a second, or bytes.
//! Fractions are allowed (`1.5mbit`), case does not matter.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A rate or size that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseUnitError {
    /// The unit is unknown, or there is no number.
    #[error("`{text}` is not a {kind}; write it like {example}")]
    Malformed {
        /// What was given.
        text: String,
        /// `rate` or `size`.
        kind: &'static str,
        /// A few that are right.
        example: &'static str,
    },
    /// Zero, or so large that it does not fit.
    #[error("a {kind} of `{text}` is out of range; write it like {example}")]
    OutOfRange {
        /// What was given.
        text: String,
        /// `rate` or `size`.
        kind: &'static str,
        /// A few that are right.
        example: &'static str,
    },
}

/// Bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

const RATES: &[(&str, f64)] = &[
    ("", 0.125),
    ("bit", 0.125),
    ("kbit", 125.0),
    ("mbit", 125e3),
    ("gbit", 125e6),
    ("tbit", 125e9),
    ("kibit", 128.0),
    ("mibit", 131_072.0),
    ("gibit", 134_217_728.0),
    ("bps", 1.0),
    ("kbps", 1e3),
    ("mbps", 1e6),
    ("gbps", 1e9),
    ("tbps", 1e12),
    ("kibps", 1024.0),
    ("mibps", 1_048_576.0),
    ("gibps", 1_073_741_824.0),
];

const SIZES: &[(&str, f64)] = &[
    ("", 1.0),
    ("b", 1.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
    ("k", 1024.0),
    ("m", 1_048_576.0),
    ("g", 1_073_741_824.0),
    ("t", 1_099_511_627_776.0),
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("tib", 1_099_511_627_776.0),
];

const RATE_EXAMPLE: &str = "`100mbit` (bits) or `2mbps` (bytes, as in tc)";
const SIZE_EXAMPLE: &str = "`500mb` or `2gib`";
/// Largest number of bytes taken: 2^53, which a double holds exactly.
const LARGEST: f64 = 9_007_199_254_740_992.0;

fn parse(
    text: &str,
    units: &[(&str, f64)],
    kind: &'static str,
    example: &'static str,
) -> Result<u64, ParseUnitError> {
    let malformed = || ParseUnitError::Malformed { text: text.to_owned(), kind, example };
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (number, unit) = lower.split_at(digits);
    let number: f64 = number.parse().map_err(|_| malformed())?;
    let unit = unit.trim_start();
    let &(_, factor) = units.iter().find(|(name, _)| *name == unit).ok_or_else(malformed)?;
    let bytes = (number * factor).round();
    if !(1.0..=LARGEST).contains(&bytes) {
        return Err(ParseUnitError::OutOfRange { text: text.to_owned(), kind, example });
    }
    Ok(bytes as u64)
}

/// The number with the largest unit that leaves it whole or at most three digits long.
fn print(value: f64, units: &[(&str, f64)]) -> String {
    let &(unit, factor) =
        units.iter().rev().find(|(_, factor)| value >= *factor).unwrap_or(&units[0]);
    let scaled = format!("{:.1}", value / factor);
    format!("{}{unit}", scaled.strip_suffix(".0").unwrap_or(&scaled))
}

/// A number of bytes for people, in powers of 1000: `4.1 MB`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: &[(&str, f64)] =
        &[(" B", 1.0), (" kB", 1e3), (" MB", 1e6), (" GB", 1e9), (" TB", 1e12)];
    print(bytes as f64, UNITS)
}

impl Rate {
    /// The rate of so many bytes a second; at least one.
    pub fn from_bytes_per_second(bytes: u64) -> Self {
        Self(bytes.max(1))
    }

    /// Bytes a second.
    pub const fn bytes_per_second(self) -> u64 {
        self.0
    }
}

impl Size {
    /// The size of so many bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        parse(text, RATES, "rate", RATE_EXAMPLE).map(Self)
    }
}

impl FromStr for Size {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        parse(text, SIZES, "size", SIZE_EXAMPLE).map(Self)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(
            self.0 as f64 * 8.0,
            &[("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)],
        ))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(
            self.0 as f64,
            &[
                ("b", 1.0),
                ("kib", 1024.0),
                ("mib", 1_048_576.0),
                ("gib", 1_073_741_824.0),
                ("tib", 1_099_511_627_776.0),
            ],
        ))
    }
}

macro_rules! as_text {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    };
}

as_text!(Rate);
as_text!(Size);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_as_tc_reads_them() {
        let cases = [
            ("100mbit", 12_500_000),
            ("2mbps", 2_000_000),
            ("16Mbit", 2_000_000),
            ("1.5mbit", 187_500),
            ("1mibps", 1_048_576),
            ("8000", 1000),
            (" 1 gbit ", 125_000_000),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Rate(bytes)), "{text}");
        }
    }

    #[test]
    fn sizes_read_as_people_write_them() {
        let cases = [
            ("2gib", 2 << 30),
            ("2g", 2 << 30),
            ("500mb", 500_000_000),
            ("1.5KiB", 1536),
            ("7", 7),
            ("1tb", 1_000_000_000_000),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "fast", "mbit", "-1mbit", "1mbyte", "1..5mbit", "10 m bit", "inf", "nan"] {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(matches!(error, ParseUnitError::Malformed { .. }), "{text}: {error}");
            assert!(error.to_string().contains("100mbit"), "{error}");
        }
        for text in ["0", "0gib", "99999999tib"] {
            let error = text.parse::<Size>().unwrap_err();
            assert!(matches!(error, ParseUnitError::OutOfRange { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_printed_can_be_read() {
        for text in ["100mbit", "1.5mbit", "800bit"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["2gib", "1.5kib", "512b"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!(bytes_text(4_123_456), "4.1 MB");
        assert_eq!(bytes_text(0), "0 B");
    }
}
