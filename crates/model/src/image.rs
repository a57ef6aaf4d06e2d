//! Node images (`behaviour.md` D2, `aks-wire.md` §6).

use std::{cmp::Ordering, fmt, str::FromStr};

use crate::serde_as_text;

/// A node image: everything before the last `-` is its family, what follows is its version.
///
/// Only images of one family compare. Linux versions come as `YYYY.MM.DD` (until early 2023) or `YYYYMM.DD.n`;
/// Windows ones as `build.revision.yymmdd`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeImage {
    text: Box<str>,
    split: u16,
}

/// The text is not a node image version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a node image version: use family-version, such as AKSUbuntu-2204gen2containerd-202510.03.1")]
pub struct ImageError(String);

impl NodeImage {
    /// The family: images of one family replace each other.
    pub fn family(&self) -> &str {
        &self.text[..usize::from(self.split)]
    }

    /// The version inside the family.
    pub fn version(&self) -> &str {
        &self.text[usize::from(self.split) + 1..]
    }

    /// The image as text, as AKS writes it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Dotted numbers; `2023.02.15` is read as `202302.15.0`, so that both Linux forms compare.
    fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.version().split('.').map(|part| part.parse().unwrap_or(0)).collect();
        let dated = matches!(numbers[..], [year, month, _] if (2000..2100).contains(&year) && month <= 12);
        if dated && self.version().split('.').next().is_some_and(|year| year.len() == 4) {
            numbers = vec![numbers[0] * 100 + numbers[1], numbers[2], 0];
        }
        numbers
    }
}

impl PartialOrd for NodeImage {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.family() == other.family()).then(|| self.numbers().cmp(&other.numbers()))
    }
}

impl FromStr for NodeImage {
    type Err = ImageError;
    fn from_str(text: &str) -> Result<Self, ImageError> {
        let refuse = || ImageError(text.chars().take(80).collect());
        let split = text.rfind('-').ok_or_else(refuse)?;
        let (family, version) = (&text[..split], &text[split + 1..]);
        let plain = text.len() <= 200 && text.bytes().all(|byte| byte.is_ascii_graphic());
        let numeric = version.split('.').all(|part| (1..=18).contains(&part.len()) && part.parse::<u64>().is_ok());
        if !plain || family.is_empty() || !numeric {
            return Err(refuse());
        }
        Ok(Self { text: text.into(), split: u16::try_from(split).map_err(|_| refuse())? })
    }
}

impl fmt::Display for NodeImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

serde_as_text!(NodeImage);

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text: &str) -> NodeImage {
        text.parse().expect(text)
    }

    #[test]
    fn d2_family_is_all_before_the_last_hyphen() {
        let linux = image("AKSUbuntu-2204gen2containerd-202407.08.0");
        assert_eq!((linux.family(), linux.version()), ("AKSUbuntu-2204gen2containerd", "202407.08.0"));
        let windows = image("AKSWindows-23H2-gen2-25398.1425.250214");
        assert_eq!(windows.family(), "AKSWindows-23H2-gen2");
    }

    #[test]
    fn d2_both_linux_forms_and_windows_revisions_compare_by_number() {
        assert!(image("AKSUbuntu-2204-2023.02.15") < image("AKSUbuntu-2204-202303.06.0"));
        assert!(
            image("AKSWindows-2022-containerd-20348.887.220810")
                < image("AKSWindows-2022-containerd-20348.2700.240911")
        );
        assert_eq!(image("A-1.0.0").partial_cmp(&image("B-1.0.0")), None);
    }

    #[test]
    fn bad_images_are_refused() {
        for bad in ["", "AKSUbuntu", "-202407.08.0", "AKSUbuntu-", "AKSUbuntu-latest", "a b-1.2.3"] {
            assert!(bad.parse::<NodeImage>().is_err(), "{bad}");
        }
    }
}
