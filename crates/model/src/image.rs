//! Node images (`behaviour.md` D2, `aks-wire.md` §6).

use std::{cmp::Ordering, fmt, str::FromStr};

use jiff::civil::Date;

use crate::serde_as_text;

/// A node image: everything before the last `-` is its family, what follows is its version. Where security patches were
/// put on it since, their date follows as `-YYYY.MM.DD`.
///
/// Only images of one family compare. Linux versions come as `YYYY.MM.DD` (until early 2023) or `YYYYMM.DD.n`;
/// Windows ones as `build.revision.yymmdd`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeImage {
    text: Box<str>,
    split: u16,
    /// Where the version ends: before the date of the patches, if there is one.
    end: u16,
}

/// Days for which nodes can be made from an image, from its publication on (`behaviour.md` D2).
pub const VALID_DAYS: u32 = 90;

/// The text is not a node image version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a node image version: use family-version, such as AKSUbuntu-2204gen2containerd-202510.03.1")]
pub struct ImageError(String);

impl NodeImage {
    /// The family: images of one family replace each other.
    pub fn family(&self) -> &str {
        &self.text[..usize::from(self.split)]
    }

    /// The version inside the family, without the date of patches.
    pub fn version(&self) -> &str {
        &self.text[usize::from(self.split) + 1..usize::from(self.end)]
    }

    /// The date of the security patches on it, if it has any beyond its own.
    pub fn security_patch(&self) -> Option<Date> {
        patch_date(self.text.get(usize::from(self.end) + 1..)?)
    }

    /// The image below its security patches.
    pub fn without_patch(&self) -> Self {
        Self { text: self.text[..usize::from(self.end)].into(), ..*self }
    }

    /// The same image with security patches of a date on it.
    pub fn with_patch(&self, patch: Date) -> Self {
        let text = format!("{}-{}", &self.text[..usize::from(self.end)], patch.strftime("%Y.%m.%d"));
        Self { text: text.into(), ..*self }
    }

    /// When it was published, as its version says.
    pub fn published(&self) -> Option<Date> {
        match numbers_of(self.version())?[..] {
            [year_month, day, _] if self.is_linux() => date(year_month, day),
            [.., compact] => date(200_000 + compact / 100, compact % 100),
            [] => None,
        }
    }

    /// The date up to which it has security patches: of those put on it, else of its own.
    pub fn patched_until(&self) -> Option<Date> {
        self.security_patch().or_else(|| self.published())
    }

    /// Whether it is for Linux nodes.
    pub fn is_linux(&self) -> bool {
        !self.text.starts_with("AKSWindows")
    }

    /// The image as text, as AKS writes it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn rank(&self) -> (Vec<u64>, Option<Date>) {
        (numbers_of(self.version()).unwrap_or_default(), self.security_patch())
    }
}

/// Dotted numbers; `2023.02.15` is read as `202302.15.0`, so that both Linux forms compare.
fn numbers_of(version: &str) -> Option<Vec<u64>> {
    let numbers: Option<Vec<u64>> = version.split('.').map(|part| part.parse().ok()).collect();
    let numbers = numbers?;
    Some(match numbers[..] {
        [year @ 2000..2100, month @ 1..=12, day] => vec![year * 100 + month, day, 0],
        _ => numbers,
    })
}

/// The date of a year and month in one number, and a day.
fn date(year_month: u64, day: u64) -> Option<Date> {
    let (year, month) = (i16::try_from(year_month / 100).ok()?, i8::try_from(year_month % 100).ok()?);
    Date::new(year, month, i8::try_from(day).ok()?).ok()
}

impl PartialOrd for NodeImage {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.family() == other.family()).then(|| self.rank().cmp(&other.rank()))
    }
}

impl FromStr for NodeImage {
    type Err = ImageError;
    fn from_str(text: &str) -> Result<Self, ImageError> {
        let refuse = || ImageError(text.chars().take(80).collect());
        let plain = text.len() <= 200 && text.bytes().all(|byte| byte.is_ascii_graphic());
        let end = patch_of(text).unwrap_or(text.len());
        let split = text[..end].rfind('-').filter(|split| *split > 0 && plain).ok_or_else(refuse)?;
        let numeric = |part: &str| (1..=18).contains(&part.len()) && part.parse::<u64>().is_ok();
        if !text[split + 1..end].split('.').all(numeric) {
            return Err(refuse());
        }
        let at = |at: usize| u16::try_from(at).map_err(|_| refuse());
        Ok(Self { text: text.into(), split: at(split)?, end: at(end)? })
    }
}

/// A date of security patches, such as `2024.12.01`.
fn patch_date(text: &str) -> Option<Date> {
    match numbers_of(text)?[..] {
        [year_month, day, 0] if text.len() == 10 => date(year_month, day),
        _ => None,
    }
}

/// Where the date of security patches begins in an image's text, with its hyphen: it follows a version of dotted numbers.
fn patch_of(text: &str) -> Option<usize> {
    let (image, patch) = text.rsplit_once('-')?;
    let version = image.rsplit_once('-')?.1;
    (version.contains('.') && numbers_of(version).is_some() && patch_date(patch).is_some()).then_some(image.len())
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
    fn d2_a_date_of_security_patches_follows_the_version() {
        let plain = image("AKSUbuntu-2204gen2containerd-202410.27.0");
        let patched = image("AKSUbuntu-2204gen2containerd-202410.27.0-2024.12.01");
        assert_eq!((patched.family(), patched.version()), (plain.family(), plain.version()));
        assert_eq!(patched.security_patch(), Some(Date::constant(2024, 12, 1)));
        assert!(plain < patched && patched < image("AKSUbuntu-2204gen2containerd-202411.03.0"));
        assert_eq!((patched.without_patch(), plain.with_patch(Date::constant(2024, 12, 1))), (plain.clone(), patched));
        assert_eq!(plain.patched_until(), plain.published());
    }

    #[test]
    fn d2_the_version_tells_when_an_image_was_published() {
        for (text, published) in [
            ("AKSUbuntu-2204gen2containerd-202407.08.0", Some(Date::constant(2024, 7, 8))),
            ("AKSUbuntu-2204-2023.02.15", Some(Date::constant(2023, 2, 15))),
            ("AKSWindows-2022-containerd-20348.3207.250214", Some(Date::constant(2025, 2, 14))),
            ("A-1.0.0", None),
        ] {
            assert_eq!(image(text).published(), published, "{text}");
        }
    }

    #[test]
    fn bad_images_are_refused() {
        for bad in ["", "AKSUbuntu", "-202407.08.0", "AKSUbuntu-", "AKSUbuntu-latest", "a b-1.2.3"] {
            assert!(bad.parse::<NodeImage>().is_err(), "{bad}");
        }
    }
}
