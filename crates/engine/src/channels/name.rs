//! Names of the runs that profiles make: `auto-PROFILE-CHANNEL-VERSION-HASH`, as the service writes them.

use flotta_model::{AutoUpgradeProfile, Channel, Goal, ImageSelection, Name};

use super::Target;

/// The name of a run, the same wherever and whenever it is made: its last part stands for the goal, the strategy and the
/// clusters to be moved (their keys, in order).
pub fn of(profile: &AutoUpgradeProfile, target: &Target, goal: &Goal, strategy: &str, to_move: &[&str]) -> Name {
    // What is hashed never changes, or runs would be made twice.
    let mut hash = Fnv::default();
    hash.add(&format!("{:?}", goal.upgrade()));
    target.versions().iter().for_each(|version| hash.add(version));
    hash.add(match goal.images() {
        None => "",
        Some(ImageSelection::Latest) => "Latest",
        Some(ImageSelection::Consistent) => "Consistent",
        Some(ImageSelection::Custom(_)) => "Custom",
    });
    hash.add(strategy);
    to_move.iter().for_each(|cluster| hash.add(cluster));
    let version = match target {
        Target::Version(version) => format!("-{}-{}-{}", version.major, version.minor, version.patch),
        Target::Images(_) => String::new(),
    };
    let tail = format!("{version}-{}", hash.base36());
    let channel = profile.channel.word().to_ascii_lowercase();
    let whole = format!("auto-{}-{channel}{tail}", profile.name);
    let short = || {
        let channel = match profile.channel {
            Channel::TargetKubernetesVersion { .. } => "target",
            _ => &channel,
        };
        let mut own = Fnv::default();
        own.add(profile.name.as_str());
        let own = own.base36();
        let fixed = "auto-".len() + "-".len() + own.len() + "-".len() + channel.len() + tail.len();
        let room = Name::LONGEST.saturating_sub(fixed);
        let kept = &profile.name.as_str()[..profile.name.as_str().len().min(room)];
        format!("auto-{}-{own}-{channel}{tail}", kept.trim_end_matches('-'))
    };
    whole.parse().or_else(|_| short().parse()).unwrap_or_else(|_| profile.name.clone())
}

/// The 32-bit hash of Fowler, Noll and Vo (1a), over texts that end with a zero byte each.
struct Fnv(u32);

impl Default for Fnv {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Fnv {
    fn add(&mut self, text: &str) {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }

    fn base36(&self) -> String {
        let mut digits = Vec::new();
        let mut rest = self.0;
        loop {
            digits.extend(char::from_digit(rest % 36, 36));
            rest /= 36;
            if rest == 0 {
                return digits.into_iter().rev().collect();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flotta_model::UpgradeType;

    use super::*;

    fn profile(name: &str, channel: Channel) -> AutoUpgradeProfile {
        AutoUpgradeProfile {
            name: name.parse().expect(name),
            channel,
            strategy_id: None,
            images: None,
            disabled: false,
            trigger: flotta_model::profile::TriggerPolicy::default(),
        }
    }

    fn name(profile_name: &str, channel: Channel, version: &str, to_move: &[&str]) -> String {
        let version = version.parse().expect(version);
        let goal = Goal::new(UpgradeType::Full, Some(flotta_model::VersionTarget::Exact(version)), None).expect("goal");
        of(&profile(profile_name, channel), &Target::Version(version), &goal, "one by one", to_move).to_string()
    }

    #[test]
    fn fnv_is_the_published_one() {
        // Of "a" without the closing zero: 0xe40c292c.
        let mut hash = Fnv::default();
        hash.0 = (hash.0 ^ u32::from(b'a')).wrapping_mul(0x0100_0193);
        assert_eq!(hash.0, 0xe40c_292c);
        assert_eq!(Fnv(u32::MAX).base36(), "1z141z3");
        assert_eq!(Fnv(0).base36(), "0");
    }

    #[test]
    fn a9_names_are_those_of_the_service_and_never_change() {
        assert_eq!(name("aup", Channel::Rapid, "1.33.3", &["/c1"]), "auto-aup-rapid-1-33-3-1qtx0by");
    }

    #[test]
    fn a9_another_member_strategy_or_goal_makes_another_name() {
        let one = name("aup", Channel::Rapid, "1.33.3", &["/c1"]);
        assert_ne!(one, name("aup", Channel::Rapid, "1.33.3", &["/c1", "/c2"]));
        assert_ne!(one, name("aup", Channel::Rapid, "1.33.4", &["/c1"]));
        assert_ne!(one, name("aup", Channel::Stable, "1.33.3", &["/c1"]));
    }

    #[test]
    fn a9_long_names_stay_valid_and_distinct() {
        let target = Channel::TargetKubernetesVersion { major: 1, minor: 33, long_term_support: false };
        let long = |last: char| format!("{}{last}", "p".repeat(49));
        for channel in [target, Channel::Rapid, Channel::SecurityPatch] {
            let (one, other) = (name(&long('a'), channel, "1.33.100", &[]), name(&long('b'), channel, "1.33.100", &[]));
            assert_ne!(one, other);
            for name in [one, other] {
                assert!(name.parse::<Name>().is_ok() && name.starts_with("auto-ppp"), "{name}");
            }
        }
    }
}
