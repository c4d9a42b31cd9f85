//! Which device a node trains on.

use std::{fmt, str::FromStr};

use candle_core::Device;

/// The device that a person asked for (`--device auto|cpu|cuda:0,1`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The best device that this build can use.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// These CUDA devices, one pipeline stage each.
    Cuda(Vec<usize>),
}

/// A device that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The text names no device.
    #[error("`{0}` names no device; write auto, cpu, or cuda:0,1")]
    Unknown(String),
    /// This build has no CUDA kernels.
    #[error("`{0}` was asked for, but this build has no CUDA support; use --device cpu")]
    NoCuda(String),
}

impl DeviceChoice {
    /// Opens the device.
    ///
    /// # Errors
    /// If this build cannot use it.
    pub fn open(&self) -> Result<Device, DeviceError> {
        match self {
            Self::Auto | Self::Cpu => Ok(Device::Cpu),
            Self::Cuda(_) => Err(DeviceError::NoCuda(self.to_string())),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        match text {
            "auto" => return Ok(Self::Auto),
            "cpu" => return Ok(Self::Cpu),
            "cuda" => return Ok(Self::Cuda(vec![0])),
            _ => {}
        }
        let unknown = || DeviceError::Unknown(text.to_owned());
        let list = text.strip_prefix("cuda:").ok_or_else(unknown)?;
        let ordinals = list.split(',').map(|part| part.parse().map_err(|_| unknown()));
        Ok(Self::Cuda(ordinals.collect::<Result<_, _>>()?))
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinals) => {
                let list: Vec<String> = ordinals.iter().map(ToString::to_string).collect();
                write!(f, "cuda:{}", list.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_parsed_and_printed() {
        for text in ["auto", "cpu", "cuda:0", "cuda:0,1"] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
        for text in ["", "gpu", "cuda:", "cuda:a", "cuda:0,"] {
            assert!(text.parse::<DeviceChoice>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_missing_backend_is_an_error_with_a_remedy() {
        let error = DeviceChoice::Cuda(vec![1]).open().unwrap_err();
        assert!(error.to_string().contains("--device cpu"));
        assert!(DeviceChoice::Auto.open().is_ok());
    }
}
